"""A clock that was wrong when certificates were made, or is wrong now, locks nobody out for longer than it is."""

import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from handshakes import Clock, client, identity, server, shake

from controller.model import Quota, RouterConfig
from controller.pki.authority import PKI
from controller.pki.certificates import load_certificate, valid_at
from controller.store.sqlite import SqliteStore

ROUTER = RouterConfig(7, "red", "r1", "s1", Quota(), ())
YEARS = timedelta(days=365)
WRONG = {"ahead": 15 * YEARS, "behind": -26 * YEARS, "a little ahead": timedelta(days=40)}


async def start(state: Path, store: SqliteStore, clock: Clock) -> PKI:
    pki = PKI(state, store, clock)
    assert (await pki.issue([ROUTER])).trouble == ""
    return pki


def connect(pki: PKI) -> None:
    shake(server(*pki.server_credentials()), client(*identity(pki.identity(7))))


@pytest.mark.parametrize("off", WRONG.values(), ids=WRONG)
async def test_a_first_start_at_a_wrong_time_heals_at_the_next(tmp_path: Path, off: timedelta) -> None:
    store = SqliteStore(tmp_path)
    wrong = await start(tmp_path, store, Clock(off))
    with pytest.raises(ssl.SSLError):
        connect(wrong)
    connect(await start(tmp_path, store, Clock()))


@pytest.mark.parametrize("off", WRONG.values(), ids=WRONG)
async def test_a_clock_that_is_set_right_heals_what_runs(tmp_path: Path, off: timedelta) -> None:
    store, clock = SqliteStore(tmp_path), Clock(off)
    pki = await start(tmp_path, store, clock)
    before = pki.generation
    clock.off = timedelta()
    assert pki.refresh() == (pki.generation != before)
    assert (await pki.issue([ROUTER])).trouble == ""
    connect(pki)
    assert not pki.refresh()  # and that was it


async def test_a_wrong_clock_later_on_keeps_the_key_so_who_trusts_the_old_certificate_goes_on(tmp_path: Path) -> None:
    store, clock = SqliteStore(tmp_path), Clock()
    pki = await start(tmp_path, store, clock)
    trusted = pki.ca_pem  # as a switch has it, where nobody writes it again
    clock.off = -26 * YEARS
    assert pki.refresh()
    clock.off = timedelta()
    assert pki.refresh()
    assert pki.ca_pem != trusted
    key, certificate, _ = identity((await start(tmp_path, store, clock)).identity(7))
    shake(server(*pki.server_credentials()), client(key, certificate, trusted))


async def test_the_authority_is_made_again_before_it_ends(tmp_path: Path) -> None:
    store, clock = SqliteStore(tmp_path), Clock()
    pki = await start(tmp_path, store, clock)
    clock.off = 19 * YEARS
    assert pki.refresh()
    now = clock()
    for pem in (pki.ca_pem, pki.routers.bundle, pki.own()[1]):
        assert valid_at(load_certificate(pem), now)
    assert load_certificate(pki.ca_pem).not_valid_after_utc > now + 15 * YEARS


async def test_the_controllers_own_certificate_is_renewed_a_month_before_its_end(tmp_path: Path) -> None:
    store, clock = SqliteStore(tmp_path), Clock()
    pki = await start(tmp_path, store, clock)
    first = pki.own()
    clock.off = timedelta(days=330)
    pki.refresh()
    assert pki.own() == first
    clock.off = timedelta(days=340)
    pki.refresh()
    assert pki.own() != first
    assert PKI(tmp_path, store, clock).own() == pki.own()
