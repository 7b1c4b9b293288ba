-- A store of schema 9, as the last version before shares wrote it.
PRAGMA user_version = 9;
BEGIN TRANSACTION;
CREATE TABLE certificates(serial TEXT PRIMARY KEY, vrf_id INTEGER NOT NULL, revoked INTEGER NOT NULL) STRICT;
INSERT INTO "certificates" VALUES('0a',1,0);
CREATE TABLE holds(plane TEXT NOT NULL, port TEXT NOT NULL, vlan INTEGER NOT NULL, interface_id INTEGER NOT NULL,
    vrf_id INTEGER NOT NULL, PRIMARY KEY(plane, port, vlan, interface_id)) STRICT;
INSERT INTO "holds" VALUES('s1','p9',0,9,1);
CREATE TABLE interfaces(id INTEGER PRIMARY KEY, vrf_id INTEGER NOT NULL REFERENCES routers ON DELETE CASCADE,
    position INTEGER NOT NULL, plane TEXT NOT NULL, name TEXT NOT NULL, port TEXT NOT NULL, vlan INTEGER NOT NULL,
    mac BLOB NOT NULL, mtu INTEGER NOT NULL, addresses TEXT NOT NULL, virtual_macs BLOB NOT NULL,
    admin_up INTEGER NOT NULL, UNIQUE(vrf_id, name), UNIQUE(plane, port, vlan)) STRICT;
INSERT INTO "interfaces" VALUES(1,1,0,'s1','eth0','p1',0,X'025307000001',1500,'10.0.0.1/24',X'',1);
INSERT INTO "interfaces" VALUES(2,1,1,'s1','eth1','p1',100,X'025307000002',1500,'',X'',1);
INSERT INTO "interfaces" VALUES(3,2,0,'hw','eth0','p1',0,X'025307000003',1500,'',X'',1);
INSERT INTO "interfaces" VALUES(4,3,0,'s1','eth0','p2',0,X'025307000004',1500,'10.0.0.1/24',X'',1);
INSERT INTO "interfaces" VALUES(5,4,0,'s1','eth0','p3',0,X'025307000005',1500,'',X'',1);
CREATE TABLE links(tenant TEXT NOT NULL, router TEXT NOT NULL, interface TEXT NOT NULL, port TEXT NOT NULL,
    other_router TEXT NOT NULL, other_interface TEXT NOT NULL, other_port TEXT NOT NULL,
    PRIMARY KEY(tenant, router, interface)) STRICT;
CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
INSERT INTO "meta" VALUES('identity',7);
INSERT INTO "meta" VALUES('next_vrf',6);
INSERT INTO "meta" VALUES('next_interface',6);
CREATE TABLE plane_certificates(number INTEGER PRIMARY KEY, serial TEXT NOT NULL UNIQUE, plane TEXT NOT NULL,
    pem BLOB NOT NULL, directory TEXT NOT NULL, revoked INTEGER NOT NULL) STRICT;
CREATE TABLE planes(name TEXT PRIMARY KEY, kind TEXT NOT NULL, datapath_id TEXT NOT NULL, attached INTEGER NOT NULL, address TEXT NOT NULL DEFAULT '', device_id TEXT NOT NULL DEFAULT '0x0', ports TEXT NOT NULL DEFAULT '[]', fallback TEXT NOT NULL DEFAULT 'null', capacity TEXT NOT NULL DEFAULT '{}', sizes TEXT NOT NULL DEFAULT '{}')
    STRICT;
INSERT INTO "planes" VALUES('s1','openflow','0x1',1,'','0x0','[]','null','{"ipv4_route": 0, "ipv6_route": 0}','{"ipv4_route": 1000000}');
INSERT INTO "planes" VALUES('hw','p4runtime','0x0',1,'192.0.2.9:9559','0x1','[["p1", 1, ""], ["p2", 2, "eth7"], ["link", 3, ""]]','{"plane": "sw", "port": "link", "peer_port": "back"}','{"ipv4_route": 1000, "ipv6_route": 0}','{}');
INSERT INTO "planes" VALUES('sw','p4runtime','0x0',1,'unix:/run/vr-forwarder.sock','0x1','[["back", 1, ""]]','null','{"ipv4_route": 0, "ipv6_route": 0}','{}');
CREATE TABLE routers(vrf_id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, plane TEXT NOT NULL,
    hold_time_s INTEGER NOT NULL, source TEXT NOT NULL, guest TEXT NOT NULL, text TEXT NOT NULL, memory_mib INTEGER NOT NULL DEFAULT 0, vcpus INTEGER NOT NULL DEFAULT 0, image TEXT NOT NULL DEFAULT '', suite TEXT NOT NULL DEFAULT 'frr', placement TEXT NOT NULL DEFAULT 'auto', came_from TEXT NOT NULL DEFAULT '',
    UNIQUE(tenant, name)) STRICT;
INSERT INTO "routers" VALUES(1,'red','r1','s1',120,'fpm','netns','',0,0,'','frr','auto','');
INSERT INTO "routers" VALUES(2,'red','r2','hw',120,'fpm','netns','',0,0,'','frr','auto','');
INSERT INTO "routers" VALUES(3,'blue','r1','s1',120,'fpm','netns','',0,0,'','frr','auto','');
INSERT INTO "routers" VALUES(4,'green','r1','s1',120,'netlink','netns','router bgp 65001
',0,0,'','frr','auto','');
CREATE TABLE slices(tenant TEXT NOT NULL, plane TEXT NOT NULL, ports TEXT NOT NULL, quota TEXT NOT NULL, said TEXT NOT NULL DEFAULT '[]', overcommit INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY(tenant, plane)) STRICT;
INSERT INTO "slices" VALUES('red','hw','[["p1", [0]]]','{"ipv4_routes":1000000,"ipv6_routes":500000,"neighbors":1024,"nexthops":4096,"groups":1024,"punts_per_s":[4000,1000,4000,1000,4000,4000,200,200,200,200,200],"hardware_ipv4_routes":300,"hardware_ipv6_routes":null,"sets":65536,"members":524288,"interfaces":16384,"memory":1099511627776}','[]',0);
INSERT INTO "slices" VALUES('red','s1','[["p1", [0, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110]]]','{"ipv4_routes":1000000,"ipv6_routes":500000,"neighbors":1024,"nexthops":4096,"groups":1024,"punts_per_s":[4000,1000,4000,1000,4000,4000,200,200,200,200,200],"hardware_ipv4_routes":null,"hardware_ipv6_routes":null,"sets":65536,"members":524288,"interfaces":16384,"memory":1099511627776}','[]',0);
INSERT INTO "slices" VALUES('blue','s1','[["p2", [0]]]','{"ipv4_routes":1000000,"ipv6_routes":500000,"neighbors":1024,"nexthops":4096,"groups":1024,"punts_per_s":[4000,1000,4000,1000,4000,4000,200,200,200,200,200],"hardware_ipv4_routes":null,"hardware_ipv6_routes":null,"sets":65536,"members":524288,"interfaces":16384,"memory":1099511627776}','[]',0);
INSERT INTO "slices" VALUES('green','s1','[["p3", [0]]]','{"ipv4_routes":700000,"ipv6_routes":500000,"neighbors":1024,"nexthops":4096,"groups":64,"punts_per_s":[3000,500,3000,500,3000,3000,9,50,50,50,50],"hardware_ipv4_routes":null,"hardware_ipv6_routes":null,"sets":65536,"members":524288,"interfaces":16384,"memory":1099511627776}','["groups", "ipv4_routes"]',0);
INSERT INTO "slices" VALUES('black','s1','[["p4", [0]]]','{"ipv4_routes":600000,"ipv6_routes":500000,"neighbors":1024,"nexthops":4096,"groups":1024,"punts_per_s":[4000,1000,4000,1000,4000,4000,200,200,200,200,200],"hardware_ipv4_routes":null,"hardware_ipv6_routes":null,"sets":65536,"members":524288,"interfaces":16384,"memory":1099511627776}','["ipv4_routes"]',0);
CREATE TABLE tenants(name TEXT PRIMARY KEY) STRICT;
INSERT INTO "tenants" VALUES('red');
INSERT INTO "tenants" VALUES('blue');
INSERT INTO "tenants" VALUES('green');
INSERT INTO "tenants" VALUES('black');
CREATE TABLE tombstones(vrf_id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, plane TEXT NOT NULL,
    hold_time_s INTEGER NOT NULL, source TEXT NOT NULL, guest TEXT NOT NULL, text TEXT NOT NULL,
    plane_clean INTEGER NOT NULL, guest_clean INTEGER NOT NULL, memory_mib INTEGER NOT NULL DEFAULT 0, vcpus INTEGER NOT NULL DEFAULT 0, image TEXT NOT NULL DEFAULT '', suite TEXT NOT NULL DEFAULT 'frr', placement TEXT NOT NULL DEFAULT 'auto', came_from TEXT NOT NULL DEFAULT '') STRICT;
INSERT INTO "tombstones" VALUES(5,'green','gone','s1',120,'fpm','netns','',0,0,0,0,'','frr','auto','');
CREATE INDEX certificates_of_router ON certificates(vrf_id);
COMMIT;
