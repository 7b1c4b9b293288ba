"""Whether cores are crowded is read from what the kernel adds up."""

from pathlib import Path

from controller.shard.cpu_pressure import CROWDED, LOOK_S, PRESSURE, CpuPressure


def written(path: Path, waited_s: float) -> None:
    total = round(waited_s * 1e6)
    path.write_text(f"some avg10=7.00 avg60=1.00 avg300=0.00 total={total}\nfull avg10=0.00 total={total + 5}\n")


def test_cores_are_crowded_while_somebody_waits_for_one_most_of_the_time(tmp_path: Path) -> None:
    told = tmp_path / "cpu"
    written(told, 1000.0)
    pressure = CpuPressure(told)
    pressure.crowded(50.0)
    for now_s, waited_s, crowded in ((51.0, CROWDED + 0.01, True), (52.0, CROWDED - 0.01, False), (53.0, 1.0, True)):
        before_s = float(told.read_text().split("total=")[1].split()[0]) / 1e6
        written(told, before_s + waited_s)
        assert pressure.crowded(now_s) is crowded
    written(told, 1000.0)
    assert pressure.crowded(53.0 + LOOK_S / 2), "it looks now and then"


def test_where_the_kernel_does_not_tell_they_are_free(tmp_path: Path) -> None:
    pressure = CpuPressure(tmp_path / "none")
    assert not any(pressure.crowded(float(now_s)) for now_s in range(9))


def test_this_kernel_tells_or_has_no_such_file() -> None:
    pressure = CpuPressure()
    first = pressure._read()
    assert (first > 0) == PRESSURE.exists()
    assert pressure._read() >= first
