"""The figures of batch jobs: their hosts, costs, rows and values."""

import json
import sys
import time
from types import SimpleNamespace

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inference import inference_pb2 as pb
from inference import inference_pb2_grpc
from outrigger_testenv.bench import __main__ as command
from outrigger_testenv.bench.batch import cost, halved, limiter, memory, rivals, soak, speed
from outrigger_testenv.bench.batch.cost import Cost
from outrigger_testenv.bench.batch.figures import BATCH_FIGURES, SOAK_FIGURES
from outrigger_testenv.bench.batch.hosts import running
from outrigger_testenv.bench.batch.job import Ended, Seen
from outrigger_testenv.bench.batch.rows import Rows
from outrigger_testenv.bench.batch.speed import Speed
from outrigger_testenv.bench.figure import FULL, QUICK, Failed, Skipped
from outrigger_testenv.bench.figures import COMPARISONS, FIGURES
from outrigger_testenv.bench.programs import DISPATCH

# The numbers of a row.
WIDTH = 2


def request(rows=3, name="r"):
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[rows, WIDTH])
    data = np.arange(rows * WIDTH, dtype="<f4").tobytes()
    return pb.ModelInferRequest(model_name="m", id=name, inputs=[tensor], raw_input_contents=[data])


@pytest.fixture
def host(tmp_path):
    """Starts a host with settings; gives a function that calls it, and the host."""
    opened = []

    def start(**settings):
        hosts = running(tmp_path, {"host": settings})
        host = hosts.__enter__()["host"]
        channel = grpc.insecure_channel(host.endpoint)
        opened.extend((hosts, channel))
        stub = inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        return stub, host

    yield start
    for hosts, channel in zip(opened[::2], opened[1::2], strict=True):
        channel.close()
        hosts.__exit__(None, None, None)


def test_a_host_returns_its_input_and_counts(host):
    stub, process = host(service=0.0)
    metadata = stub.ModelMetadata(pb.ModelMetadataRequest(name="m"))
    assert [(each.name, list(each.shape)) for each in metadata.outputs] == [("OUT_x", [-1, WIDTH])]
    assert process.first() is None
    answer = stub.ModelInfer(request())
    assert (answer.id, list(answer.outputs[0].shape)) == ("r", [3, WIDTH])
    assert answer.raw_output_contents[0] == request().raw_input_contents[0]
    assert process.first() <= time.time()
    report = process.stop()
    assert (report.calls, report.scored, report.rows, report.refused) == (1, 1, 3, 0)
    assert report.first <= report.last


def test_an_answer_has_the_width_that_was_asked_for(host):
    stub, _ = host(service=0.0, answer_width=100)
    answer = stub.ModelInfer(request(rows=2))
    assert list(answer.outputs[0].shape) == [2, 100]
    assert len(answer.raw_output_contents[0]) == 2 * 100 * 4


def test_requests_wait_for_a_place_and_further_ones_are_refused(host):
    stub, process = host(slots=[(0, 1)], queue=1, service=0.5, jitter=0.0, until=60)
    answers = [stub.ModelInfer.future(request()) for _ in range(4)]
    codes = [each.exception().code() for each in answers if each.exception()]
    assert codes == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 2
    report = process.stop()
    assert (report.calls, report.scored, report.refused) == (4, 2, 2)
    short, long = sorted(report.round_trips)
    assert short >= 0.49 and long >= 0.98


def test_a_request_that_is_given_up_leaves_its_place(host):
    stub, process = host(slots=[(0, 1)], service=0.3, jitter=0.0)
    running_one = stub.ModelInfer.future(request())
    with pytest.raises(grpc.RpcError):
        stub.ModelInfer(request(), timeout=0.1)
    running_one.result()
    stub.ModelInfer(request())
    assert process.stop().scored == 2


def test_places_change_with_time(host):
    stub, process = host(slots=[(0, 1), (0.2, 2)], service=2.0, jitter=0.0, until=60)
    for each in [stub.ModelInfer.future(request()) for _ in range(2)]:
        each.result()
    # The second one waits until there is a second place.
    short, long = sorted(process.stop().round_trips)
    assert short >= 1.98 and 2.15 <= long < 3.9


def test_requests_are_answered_wrongly_by_turns(host):
    stub, process = host(service=0.0, lies=1.0)
    found = []
    for _ in range(3):
        try:
            answer = stub.ModelInfer(request())
            found.append((answer.id, answer.outputs[0].shape[0]))
        except grpc.RpcError as error:
            found.append(error.code())
    assert sorted(found, key=str) == [
        ("another", 3),
        ("r", 4),
        grpc.StatusCode.INTERNAL,
    ]
    assert process.stop().lies == 3


def test_the_cost_of_a_command_has_that_of_its_children(tmp_path):
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    both = f"{sys.executable} -c '{busy}' & {sys.executable} -c '{busy}'; wait"
    looks = []
    taken = cost.of(["sh", "-c", both], tmp_path / "log", look=looks.append, every=0.02)
    assert 1.0 <= taken.cpu < 3.0
    assert taken.seconds >= 0.5
    assert len(looks) > 5


# Its child is removed by the kernel, so its CPU time is in no total.
CARELESS = """
import os, signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
busy = "import time\\nwhile time.process_time() < 1: pass"
subprocess.Popen([sys.executable, "-c", busy])
try:
    os.wait()
except ChildProcessError:
    pass
"""


def test_children_that_nobody_waits_for_count_too(tmp_path):
    taken = cost.of([sys.executable, "-c", CARELESS], tmp_path / "log")
    assert taken.cpu >= 0.7


def test_a_command_that_fails_says_why(tmp_path):
    with pytest.raises(Failed, match=r"sh ended with 3: out\nwrong"):
        cost.of(["sh", "-c", "echo out; echo wrong >&2; exit 3"], tmp_path / "log")


def test_the_start_of_a_client_does_not_count():
    def score(task):
        return Cost(seconds=3 + task.rows.count / 128, cpu=5 + task.rows.count / 16)

    assert speed._speed(score, (10, 110), (None, None)) == Speed(rate=128, by_cpu=16)


def turn(**by_cpu):
    return {name: Speed(rate=100 * value, by_cpu=value) for name, value in by_cpu.items()}


def test_a_client_is_compared_in_each_turn(monkeypatch):
    turns = [turn(outrigger=30.0, asyncio=10.0, generator=40.0)] * 2
    monkeypatch.setattr(speed, "_turns", lambda effort: (turns, {"ray": "there is no ray"}))
    assert speed.by_cpu("asyncio", None, QUICK).samples == [3.0, 3.0]
    assert speed.rate(None, QUICK).samples == [0.75, 0.75]
    with pytest.raises(Skipped, match="there is no ray"):
        speed.by_cpu("ray", None, QUICK)


def test_a_client_that_fails_fails_its_own_figure_only(monkeypatch):
    def fails(task):
        raise Failed("ray: no")

    assert str(speed._tried(fails, (1, 2), (None, None))) == "ray: no"
    failed = turn(outrigger=30.0, asyncio=10.0) | {"ray": Failed("ray: no")}
    turns = [turn(outrigger=30.0, asyncio=10.0, ray=1.0), failed]
    monkeypatch.setattr(speed, "_turns", lambda effort: (turns, {}))
    measured = speed.by_cpu("asyncio", None, QUICK)
    assert measured.samples == [3.0, 3.0]
    assert [sorted(run) for run in measured.runs] == [
        ["asyncio", "outrigger", "ray"],
        ["asyncio", "outrigger"],
    ]
    with pytest.raises(Failed, match="ray: no"):
        speed.by_cpu("ray", None, QUICK)


def output(directory, *chunks):
    """Writes the output of a job: chunks of ids, and their scores."""
    named = []
    (directory / "data").mkdir()
    for at, (ids, scores) in enumerate(chunks):
        name = f"data/{at}.parquet"
        x = pa.array(list(scores), pa.list_(pa.float32()))
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "OUT_x": x}), directory / name)
        named.append({"data": {"name": name}})
    manifest = {"chunks": [*named, {"data": None}]}
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory


def test_rows_are_written_as_they_are_checked(tmp_path):
    rows = Rows(70_000, WIDTH)
    table = pq.read_table(rows.write(tmp_path / "rows.parquet"))
    assert table["id"].to_pylist() == list(range(70_000))
    x = table["x"].combine_chunks().flatten().to_numpy().reshape(-1, WIDTH)
    assert rows.wrong(output(tmp_path, (range(70_000), x)), "OUT_x") == 0


@pytest.mark.parametrize(
    ("ids", "fault", "wrong"),
    [
        (range(6), "none", 0),
        ([0, 1, 2, 4, 5], "none", 1),
        ([0, 1, 2, 3, 3, 5], "none", 1),
        ([0, 1, 3, 2, 4, 5], "none", 1),
        (range(6), "value", 1),
        (range(6), "width", 3),
    ],
)
def test_wrong_rows_are_counted(ids, fault, wrong, tmp_path):
    rows = Rows(6, WIDTH)
    ids = list(ids)
    scores = [rows.values()[row] for row in ids]
    if fault == "value":
        scores[4] = scores[4] + 1
    if fault == "width":
        scores[4] = scores[4][:1]
    half = output(tmp_path, (ids[:3], scores[:3]), (ids[3:], scores[3:]))
    assert rows.wrong(half, "OUT_x") == wrong


def test_requests_of_mlserver_are_a_row_each(tmp_path):
    rows = Rows(3, WIDTH)
    task = rivals.Task(tmp_path, None, "m", rows)
    lines = [json.loads(line) for line in task.lines.read_text().splitlines()]
    assert [line["id"] for line in lines] == ["row-0", "row-1", "row-2"]
    (tensor,) = lines[2]["inputs"]
    assert (tensor["shape"], len(tensor["data"])) == ([1, WIDTH], WIDTH)
    assert np.float32(tensor["data"]).tolist() == rows.values()[2].tolist()
    assert pq.read_metadata(task.source).num_rows == 3


def test_the_worse_kind_of_host_of_the_simulation_counts(monkeypatch):
    lines = [
        "bench batch-limiter-simulated-throughput 0.98 x",
        "bench batch-limiter-simulated-refused 0.2 %",
        "# of the second kind",
        "bench batch-limiter-simulated-throughput 0.97 x",
        "bench batch-limiter-simulated-refused 0.4 %",
    ]
    monkeypatch.setattr(limiter, "_simulation", lambda program: "\n".join(lines))
    setup = SimpleNamespace(programs={DISPATCH: "figures"})
    assert limiter.simulated(limiter.THROUGHPUT, setup, FULL).samples == [0.97]
    assert limiter.simulated(limiter.REFUSED, setup, FULL).samples == [0.4]


def test_the_values_of_a_host_are_the_differences_of_its_counts():
    looks = [
        # The times in the model are 0.1 s a request, and the round trips 0.12 s and then 0.5 s.
        halved.Counts(time=7.0, answers=10, refused=0, round_trips=1.0, running=1.0),
        halved.Counts(time=8.0, answers=70, refused=1, round_trips=8.2, running=7.0),
        halved.Counts(time=8.5, answers=70, refused=1, round_trips=8.2, running=7.0),
        halved.Counts(time=9.0, answers=100, refused=10, round_trips=23.2, running=10.0),
    ]
    values = halved.values(looks, places=12.0)
    assert values[limiter.THROUGHPUT] == pytest.approx(0.75)
    assert values[limiter.REFUSED] == pytest.approx(10)
    assert values[limiter.ROUND_TRIP] == pytest.approx(1.2)
    with pytest.raises(Failed, match="nothing"):
        halved.values(looks[1:3], places=12.0)


def test_memory_is_in_mebibytes_and_the_wait_for_writers_in_percent(monkeypatch):
    reports = [{"memory_peak": 300 << 20, "blocked_seconds": 15.0}, {"blocked_seconds": 0.5}]

    def of(is_fast, count):
        seen = Seen(resident=400 << 20, report=reports[not is_fast])
        return Ended(Cost(20.0, 3.0), {"rows": 1280, "seconds": 20.0}, seen)

    monkeypatch.setattr(memory, "_job", of)
    assert memory.buffers(None, QUICK).samples == [300]
    assert memory.resident(None, QUICK).samples == [400]
    measured = [memory.blocked(is_paced, None, QUICK) for is_paced in (True, False)]
    assert [each.samples for each in measured] == [[2.5], [75.0]]
    assert measured[0].conditions == {"answers_per_second": 64}
    reports[:] = [{}, {}]
    with pytest.raises(Skipped, match="does not report"):
        memory.blocked(True, None, QUICK)
    with pytest.raises(Failed, match="before its first report"):
        memory.buffers(None, QUICK)


def test_growth_is_that_of_the_last_third(monkeypatch):
    course = soak._Course([50, 80, 100, 100, 104, 106], kills=3, changes=5, outages=2, lost=0)
    monkeypatch.setattr(soak, "_course", lambda duration: course)
    assert soak.memory(None, QUICK).samples == [pytest.approx(105 / 100)]
    assert soak.lost(None, QUICK).samples == [0]


def test_the_figures_of_batch_are_measured_by_their_prefix_only(tmp_path, monkeypatch):
    chosen = []
    monkeypatch.setattr(command, "build", lambda programs: {})
    monkeypatch.setattr(
        command, "measure_all", lambda figures, *_: chosen.append([each.name for each in figures])
    )
    for arguments in ([], ["--only", "batch-"], ["--only", "soak"]):
        command.main([*arguments, "--output", str(tmp_path)])
    everything, batch, soaked = chosen
    assert everything == [each.name for each in FIGURES]
    assert batch == [each.name for each in BATCH_FIGURES]
    assert soaked == [each.name for each in SOAK_FIGURES]


def test_names_of_figures_are_those_of_no_other():
    names = [each.name for each in (*FIGURES, *COMPARISONS, *BATCH_FIGURES, *SOAK_FIGURES)]
    assert len(set(names)) == len(names)


def test_the_figures_of_batch_fit_into_their_time():
    assert all(each.seconds(QUICK) > 0 for each in (*BATCH_FIGURES, *SOAK_FIGURES))
    assert sum(each.seconds(FULL) for each in BATCH_FIGURES) < 20 * 60
    assert sum(each.seconds(QUICK) for each in (*BATCH_FIGURES, *SOAK_FIGURES)) < 6 * 60
    assert sum(each.seconds(FULL) for each in SOAK_FIGURES) >= 30 * 60
