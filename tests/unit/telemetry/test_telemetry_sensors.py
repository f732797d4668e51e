"""Sensors: known counters go in, the same watts come out; what is absent is absent and says why."""

import os
import re
import time
import types

import pytest

from fastllmload.telemetry.sensors import command as commands
from fastllmload.telemetry.sensors.command import Command, open_powermetrics, power_line, watts
from fastllmload.telemetry.sensors.host import Host
from fastllmload.telemetry.sensors.nvml import open_nvml, throttle_words
from fastllmload.telemetry.sensors.rapl import Rapl, Zone, open_rapl
from fastllmload.telemetry.sensors.sensor import Absent, SensorError
from fastllmload.telemetry.spec import open_power


def by_name(readings):
    return {reading.key.name: reading.value for reading in readings}


# -- RAPL -------------------------------------------------------------------------------------------------------------


def write_zone(root, directory, name, energy, highest=262_143_328_850):
    path = root / directory
    path.mkdir(parents=True)
    (path / "name").write_text(f"{name}\n")
    (path / "energy_uj").write_text(f"{energy}\n")
    (path / "max_energy_range_uj").write_text(f"{highest}\n")
    return path / "energy_uj"


@pytest.fixture
def ticking(monkeypatch):
    """A clock that moves one second at each reading."""
    now = [0]

    def tick():
        now[0] += 1_000_000_000
        return now[0]

    monkeypatch.setattr("fastllmload.telemetry.sensors.rapl.time.monotonic_ns", tick)


def test_rapl_adds_packages_and_memory_but_not_their_parts(tmp_path, ticking):
    energies = {
        "intel-rapl:0": ("package-0", 40_000_000),
        "intel-rapl:0:0": ("core", 30_000_000),
        "intel-rapl:0:1": ("dram", 5_000_000),
        "intel-rapl:1": ("package-1", 20_000_000),
        "intel-rapl:2": ("psys", 99_000_000),
    }
    paths = {directory: write_zone(tmp_path, directory, name, 1000) for directory, (name, _) in energies.items()}
    sensor = open_rapl(tmp_path)
    assert sensor.read() == []  # one reading of a counter gives no power
    for path in paths.values():
        path.write_text(str(1000))
    # Every zone reads the clock once per read: five seconds lie between two reads of the same zone.
    for directory, (_, used) in energies.items():
        paths[directory].write_text(str(1000 + 5 * used))
    found = by_name(sensor.read())
    assert found == pytest.approx({
        "rapl.package-0.power_w": 40.0, "rapl.package-0/core.power_w": 30.0, "rapl.package-0/dram.power_w": 5.0,
        "rapl.package-1.power_w": 20.0, "rapl.psys.power_w": 99.0, "power_w": 65.0,
    })  # fmt: skip


def test_a_counter_that_wraps_around_continues(tmp_path, ticking):
    path = tmp_path / "energy_uj"
    path.write_text("999000")
    zone = Zone("package-0", path, highest_uj=999_999)
    assert zone.watts() is None
    path.write_text("1000")
    assert zone.watts() == pytest.approx(2000 / 1e6)


def test_psys_alone_is_the_power(tmp_path, ticking):
    path = tmp_path / "energy_uj"
    path.write_text("0")
    sensor = Rapl([Zone("psys", path, 10**9)])
    sensor.read()
    path.write_text("7000000")
    assert by_name(sensor.read())["power_w"] == 7.0


def test_no_rapl_says_why(tmp_path):
    assert "RAPL energy counter" in open_rapl(tmp_path / "nothing").why
    assert "RAPL energy" in open_rapl(tmp_path).why
    write_zone(tmp_path, "intel-rapl:0", "package-0", "garbage")
    assert open_rapl(tmp_path).why.endswith("not a number")


def test_rapl_for_root_only_says_so(tmp_path, monkeypatch):
    write_zone(tmp_path, "intel-rapl:0", "package-0", 5)

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr("pathlib.Path.read_text", refuse)
    found = open_rapl(tmp_path)
    assert isinstance(found, Absent) and "only for root" in found.why


# -- NVML -------------------------------------------------------------------------------------------------------------


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class FakeNvml(types.SimpleNamespace):
    """Two GPUs; the second has no power sensor."""

    NVMLError, NVMLError_NotSupported = NVMLError, NVMLError_NotSupported
    NVML_TEMPERATURE_GPU = NVML_CLOCK_SM = 0

    def __init__(self, gpus=2):
        super().__init__(gpus=gpus, silent={1}, broken=set(), closed=False)

    def nvmlInit(self):
        if self.gpus is None:
            raise NVMLError("Driver Not Loaded")

    def nvmlShutdown(self):
        self.closed = True

    def nvmlDeviceGetCount(self):
        return self.gpus

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetPowerUsage(self, gpu):
        if gpu in self.silent:
            raise NVMLError_NotSupported
        if gpu in self.broken:
            raise NVMLError("Unknown Error")
        return 300_000 + gpu

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu):
        return 5_000_000

    def nvmlDeviceGetUtilizationRates(self, gpu):
        return types.SimpleNamespace(gpu=75)

    def nvmlDeviceGetMemoryInfo(self, gpu):
        return types.SimpleNamespace(used=2**30, total=2**34)

    def nvmlDeviceGetTemperature(self, gpu, which):
        return 61

    def nvmlDeviceGetClockInfo(self, gpu, which):
        return 1755

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu):
        return 0x4 | 0x1

    def nvmlSystemGetDriverVersion(self):
        return b"550.54"

    def nvmlDeviceGetName(self, gpu):
        return "Fake H200"

    def nvmlDeviceGetUUID(self, gpu):
        raise NVMLError("no")

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu):
        return 700_000


@pytest.fixture
def nvml(monkeypatch):
    fake = FakeNvml()
    monkeypatch.setattr("fastllmload.telemetry.sensors.nvml.importlib.import_module", lambda name: fake)
    return fake


def test_a_gpu_tells_its_figures_in_base_units(nvml):
    assert by_name(open_nvml([0]).read()) == {
        "gpu0.power_w": 300.0, "gpu0.energy_j": 5000.0, "gpu0.utilisation": 0.75, "gpu0.memory_used_bytes": 2**30,
        "gpu0.temperature_c": 61.0, "gpu0.sm_clock_mhz": 1755.0, "gpu0.throttle_reasons": 5.0, "power_w": 300.0,
    }  # fmt: skip


def test_a_sum_over_gpus_needs_all_of_them(nvml):
    """Half of the power would look like a good result."""
    sensor = open_nvml()
    found = by_name(sensor.read())
    assert "power_w" not in found and "gpu1.power_w" not in found and found["gpu1.temperature_c"] == 61.0
    nvml.silent = set()
    assert "power_w" not in by_name(sensor.read())  # it said that it has none; it is not asked again
    assert by_name(open_nvml().read())["power_w"] == 600.001


def test_an_error_of_one_read_is_a_gap_of_that_read(nvml):
    sensor = open_nvml([0])
    nvml.broken = {0}
    assert "gpu0.power_w" not in by_name(sensor.read())
    nvml.broken = set()
    assert by_name(sensor.read())["power_w"] == 300.0


def test_facts_of_a_gpu_are_null_where_it_does_not_tell(nvml):
    assert open_nvml([1]).facts() == [
        {
            "index": 1,
            "name": "Fake H200",
            "uuid": None,
            "memory_bytes": 2**34,
            "power_limit_w": 700.0,
            "driver": "550.54",
        }
    ]


def test_no_nvml_says_why(nvml):
    assert re.findall(r"GPU 5|2 GPUs", open_nvml([5]).why) == ["GPU 5", "2 GPUs"] and nvml.closed
    nvml.gpus = 0
    assert open_nvml().why == "NVML sees 0 GPUs"
    nvml.gpus = None
    assert ": Driver Not Loaded;" in open_nvml().why


def test_a_missing_package_says_how_to_get_it():
    assert "extra `gpu`" in open_nvml(module="no_such_module_of_nvml").why


def test_idle_and_fixed_clocks_are_not_throttling():
    assert throttle_words(0x1 | 0x2 | 0x10 | 0x100) == []
    assert throttle_words(0x4 | 0x40) == ["power cap", "heat (hardware)"]


# -- powermetrics -----------------------------------------------------------------------------------------------------

POWERMETRICS = """\
*** Sampled system activity (Sat Nov 21 10:00:00 2026 +0000) (1002.51ms elapsed) ***

**** Processor usage ****
E-Cluster HW active frequency: 1020 MHz
CPU Power: 4321 mW
GPU Power: 15678 mW
ANE Power: 0 mW
Combined Power (CPU + GPU + ANE): 19999 mW

**** GPU usage ****
GPU HW active residency:  97.60%
GPU Power: 15678 mW
"""


def test_powermetrics_blocks_are_read():
    found = [pair for line in POWERMETRICS.splitlines() for pair in power_line(line)]
    assert {key.name: value for key, value in found} == pytest.approx({
        "powermetrics.cpu.power_w": 4.321, "powermetrics.gpu.power_w": 15.678, "powermetrics.ane.power_w": 0.0,
        "power_w": 19.999,
    })  # fmt: skip


def test_powermetrics_is_absent_elsewhere():
    assert "macOS" in open_powermetrics(1.0, platform="linux").why


# -- a command --------------------------------------------------------------------------------------------------------


@pytest.fixture
def shell():
    opened = []

    def start(line):
        opened.append(open_power("command", line))
        return opened[-1]

    yield start
    for sensor in opened:
        sensor.close()


@pytest.mark.parametrize(
    ("line", "value"),
    [("41.5", 41.5), (" 41.5 W\n", 41.5), ("41500 mW", 41.5), ("7 watts", 7.0), (".5", 0.5)],
)
def test_lines_that_are_watts(line, value):
    assert watts(line)[0][1] == pytest.approx(value)


@pytest.mark.parametrize("line", ["", "W", "-5", "5 kW", "5 6", "nan", "power: 5 W", "1e3"])
def test_lines_that_are_none(line):
    with pytest.raises(SensorError, match="of watts"):
        watts(line)


def test_a_command_that_ends_is_run_again(shell, tmp_path):
    count = tmp_path / "count"
    sensor = shell(f"echo x >> {count}; wc -l < {count}")
    assert [by_name(sensor.read())["power_w"] for _ in range(3)] == [1.0, 2.0, 3.0]


def test_a_command_that_keeps_printing_is_left_to_run(shell, tmp_path):
    count = tmp_path / "count"
    sensor = shell(f"echo x >> {count}; echo 5; while read line < {tmp_path}/next; do echo $line; done; sleep 100")
    os.mkfifo(tmp_path / "next")
    before = time.monotonic_ns()
    (first,) = sensor.read()
    assert first.value == 5.0 and before < first.t_ns < time.monotonic_ns()
    assert sensor.read() == []  # nothing new is not a failure
    (tmp_path / "next").write_text("6\n")
    while not (found := sensor.read()):
        time.sleep(0.005)
    assert [reading.value for reading in found] == [6.0]
    assert count.read_text() == "x\n"


def test_garbage_is_reported_and_the_good_lines_are_kept(shell):
    sensor = shell("echo 5; echo no; echo 6")
    with pytest.raises(SensorError, match="of watts") as raised:
        sensor.read()
    assert [reading.value for reading in raised.value.readings] == [5.0, 6.0]


def test_a_command_that_fails_says_its_exit_code(shell):
    with pytest.raises(SensorError, match="exit code 7"):
        shell("exit 7").read()
    with pytest.raises(SensorError, match="cannot be started"):
        Command(["/no/such/program"]).read()


def test_a_command_that_hangs_is_started_again(shell, monkeypatch, tmp_path):
    monkeypatch.setattr(commands, "FIRST_LINE_S", 0.05)
    monkeypatch.setattr(commands, "SILENT_S", 0.0)
    sensor = shell(f"echo $$ >> {tmp_path}/pids; exec sleep 100")
    deadline = time.monotonic() + 10
    while not (tmp_path / "pids").exists() and time.monotonic() < deadline:
        with pytest.raises(SensorError, match="printed nothing"):
            sensor.read()


def test_nothing_of_a_command_is_left_running(shell, tmp_path):
    sensor = shell(f"sleep 100 & echo $! > {tmp_path}/child; echo 5; wait")
    sensor.read()
    child = int((tmp_path / "child").read_text())
    sensor.close()
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(child)


def alive(pid):
    """A zombie of the init process is not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_api_key_is_not_in_the_environment_of_a_command(shell, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert by_name(shell('test -z "$OPENAI_API_KEY" && echo 1').read())["power_w"] == 1.0


# -- the host ---------------------------------------------------------------------------------------------------------


def write_host(root, ticks, received=0):
    (root / "proc").mkdir(exist_ok=True)
    lines = [f"{name} {' '.join(map(str, fields))}" for name, fields in ticks.items()]
    (root / "proc/stat").write_text("\n".join([*lines, "intr 5", "cpufreq 1"]) + "\n")
    (root / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
    (root / "proc/loadavg").write_text("1.25 1.0 0.5 1/2 3\n")
    device = root / "sys/class/net/eth7/statistics"
    device.mkdir(parents=True, exist_ok=True)
    (device / "rx_bytes").write_text(f"{received}\n")
    (device / "tx_bytes").write_text("7\n")


def test_cpu_shares_are_those_between_two_reads(tmp_path):
    idle = {"cpu": [0] * 10, "cpu0": [0] * 10, "cpu1": [0] * 10}
    busy = {
        "cpu": [50, 0, 20, 100, 10, 0, 0, 20, 0, 0],
        "cpu0": [100, 0, 0, 0, 0, 0, 0, 0],
        "cpu1": [0, 0, 0, 90, 10, 0, 0, 0],
    }
    write_host(tmp_path, idle)
    host = Host("eth7", tmp_path)
    assert "host.cpu.busy" not in by_name(host.read())
    write_host(tmp_path, busy, received=1000)
    found = by_name(host.read())
    assert found.pop("sampler.cpu_s") > 0
    assert found == pytest.approx({
        "host.cpu.busy": 0.45, "host.cpu.steal": 0.1, "host.cpu0.busy": 1.0, "host.cpu1.busy": 0.0,
        "host.memory_available_bytes": 2048 * 1024, "host.load1": 1.25, "host.net.rx_bytes": 1000,
        "host.net.tx_bytes": 7,
    })  # fmt: skip


def test_what_a_host_does_not_have_has_no_series(tmp_path):
    write_host(tmp_path, {"cpu": [0] * 10})
    names = by_name(Host(None, tmp_path).read())
    assert not any("clock" in name or "thermal" in name or "net" in name for name in names)


def test_clock_and_thermal_counters_of_all_cores(tmp_path):
    write_host(tmp_path, {"cpu": [0] * 10})
    for core, (clock, throttles) in enumerate([(2_000_000, 3), (3_000_000, 4)]):
        root = tmp_path / f"sys/devices/system/cpu/cpu{core}"
        (root / "cpufreq").mkdir(parents=True)
        (root / "thermal_throttle").mkdir()
        (root / "cpufreq/scaling_cur_freq").write_text(str(clock))
        (root / "thermal_throttle/core_throttle_count").write_text(str(throttles))
    found = by_name(Host(None, tmp_path).read())
    assert found["host.cpu.clock_hz"] == 2.5e9 and found["host.cpu.thermal_throttles"] == 7


def test_a_host_that_cannot_be_read_has_a_sentence(tmp_path):
    with pytest.raises(SensorError, match="/proc or /sys .*FileNotFoundError"):
        Host(None, tmp_path).read()


def test_this_machine_is_read():
    found = by_name(Host("lo").read())
    assert found["host.memory_available_bytes"] > 0 and found["host.net.rx_bytes"] >= 0
