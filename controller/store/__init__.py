"""What survives the controller: tenants, routers, planes, certificates and issued ids."""
