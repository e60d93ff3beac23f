"""HandleReloadConfigRequest: what is refused, what is waited for, and what hangs."""

from tensorflow_serving.config import logging_config_pb2
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from outrigger_testenv.conformance import models
from outrigger_testenv.conformance.client import finished
from outrigger_testenv.conformance.row import Row
from outrigger_testenv.conformance.scene import BASE, STILL, Scene

_FAILED = "UNKNOWN: 1 model(s) did not become available: {{{name: %s version: %d} due to error: *}"
# The deprecated number of the platform "tensorflow" in a configuration.
_TENSORFLOW = 1
_ANY = {"x": [0.0]}


def _custom(scene: Scene) -> str:
    config = ModelServerConfig()
    config.custom_model_config.SetInParent()
    return finished(scene.client.reload(config))


def _duplicate(scene: Scene) -> str:
    """A list with one name twice, and a further model, which is not served."""
    scene.write("refused", 1, models.constant(1))
    model = scene.model("refused")
    return f"{scene.refused(model, model)}; {scene.states('refused')}"


def _long(scene: Scene) -> str:
    model = scene.model("n" * 2000)
    seen = scene.refused(model, model)
    return f"{seen} of {len(seen.removeprefix('INVALID_ARGUMENT: '))} bytes"


def _changed(**settings) -> str:
    """A known model with other settings, which are refused before anything changes."""

    def act(scene: Scene) -> str:
        scene.forget(BASE)
        seen = scene.refused(scene.model(BASE, **settings))
        scene.add(BASE)
        return seen

    return act


def _type_alone(scene: Scene) -> str:
    scene.write("typed", 1, models.constant(1))
    return scene.add("typed", model_platform="", model_type=_TENSORFLOW)


def _added(scene: Scene) -> str:
    scene.write("added", 1, models.constant(1))
    call = scene.begin_add("added")
    return f"status {call.result().status.error_code}, {scene.states('added')}"


def _partly(scene: Scene) -> str:
    """A good model and a bad one in one list, and the same list again."""
    scene.write("fine", 1, models.constant(1))
    scene.write("bad", 1, models.empty)
    scene.expect("fine")
    return f"{scene.add('bad')}; {scene.states('fine')}; {scene.push()}"


def _highest(scene: Scene) -> str:
    scene.write("highest", 1, models.constant(1))
    scene.write("highest", 2, models.empty)
    added = scene.add("highest", versions="all")
    return f"{added}; {scene.settled('highest', '1 AVAILABLE')}"


def _waits(scene: Scene) -> str:
    """A new model whose load takes long, and the call that adds it."""
    with scene.waiting_load("awaited") as end:
        call = scene.begin_add("awaited")
        during = scene.pending(call)
        end()
        return f"{during}, then {finished(call)}, {scene.states('awaited')}"


def _known(scene: Scene) -> str:
    """A known model that gets another version, whose load takes long."""
    scene.write("known", 1, models.constant(1))
    scene.add("known", versions=[1])
    with scene.waiting_load("known", 2) as end:
        added = scene.add("known", versions=[1, 2])
        during = scene.settled("known", "2 LOADING")
        end()
        return f"{added}, {during}, then {scene.settled('known', '2 AVAILABLE')}"


def _abandoned(scene: Scene) -> str:
    """A caller that gives up while a model is loaded, and the next one."""
    scene.write("next", 1, models.constant(1))
    with scene.waiting_load("abandoned") as end:
        first = finished(scene.begin_add("abandoned", timeout=1.0)).partition(":")[0]
        second = scene.begin_add("next")
        during = f"{scene.pending(second)}; {scene.predict(BASE, outputs=('y',))}"
        end()
        return f"{first}; {during}; {finished(second)}; {scene.states('abandoned')}"


def _stuck(scene: Scene) -> str:
    """A model that is added while a run of another model does not end."""
    scene.write("stuck", 1, models.waiting)
    scene.write("held-up", 1, models.constant(1))
    scene.add("stuck")
    with scene.waiting_run("stuck") as end:
        call = scene.begin_add("held-up")
        during = f"{scene.pending(call)}; {scene.predict(BASE, outputs=('y',))}"
        return f"{during}; {end()}; {finished(call)}"


def _without_versions(name: str, prepare) -> str:
    """A model without any version, the call that adds it, a version of another model that appears
    meanwhile, and a directory that ends the wait.
    """

    def act(scene: Scene) -> str:
        other = f"{name}-other"
        scene.write(other, 1, models.constant(1))
        scene.add(other)
        prepare(scene.base_path(name))
        call = scene.begin_add(name)
        pending = scene.pending(call)
        scene.write(other, 2, models.constant(2))
        during = f"{pending}; {scene.settled(other, '1 END', timeout=STILL)}; {scene.states(name)}"
        models.empty(scene.base_path(name) / "1")
        return f"{during}; {finished(call)}"

    return act


def _absent_version(scene: Scene) -> str:
    """A model whose policy names a version that appears later."""
    scene.write("awaited-version", 1, models.constant(1))
    call = scene.begin_add("awaited-version", versions=[2])
    during = f"{scene.pending(call)}; {scene.states('awaited-version')}"
    scene.write("awaited-version", 2, models.constant(2))
    return f"{during}; {finished(call)}; {scene.states('awaited-version')}"


def _reloaded(scene: Scene) -> str:
    """A model that is removed and, after its end, added again."""
    scene.write("reloaded", 1, models.constant(1))
    scene.add("reloaded")
    removed = scene.remove("reloaded")
    scene.flushed("reloaded")
    return f"{removed}; {scene.add('reloaded')}; {scene.states('reloaded')}"


def _logging(scene: Scene) -> str:
    scene.write("logged", 1, models.constant(1))
    config = logging_config_pb2.LoggingConfig()
    config.sampling_config.sampling_rate = 1.0
    added = scene.add("logged", logging_config=config)
    return f"{added}; {scene.states('logged')}"


def _metrics(scene: Scene) -> str:
    answer = scene.client.reload(scene.config(), ["/unknown"]).result()
    return ", ".join(f"{metric.name} {metric.int64_value_increase}" for metric in answer.metric)


def _emptied(scene: Scene) -> str:
    """An empty list, and the model that was served before."""
    call = scene.client.reload(ModelServerConfig(model_config_list={}))
    seen = f"{finished(call)}; {scene.settled(BASE, 'END')}; {scene.predict(BASE)}"
    scene.flushed(BASE, 123)
    scene.push()
    return seen


_REFUSED = [
    Row(
        "reload-nothing",
        "no configuration",
        "INVALID_ARGUMENT: *",
        lambda scene: finished(scene.client.reload(None)),
    ),
    Row("reload-custom", "a custom configuration", "INVALID_ARGUMENT: *", _custom),
    Row(
        "reload-duplicate",
        "a name twice; nothing changes",
        "INVALID_ARGUMENT: Illegal to list model refused multiple times in config list*; "
        "NOT_FOUND: *",
        _duplicate,
    ),
    Row(
        "reload-long-message",
        "a long message is cut",
        "INVALID_ARGUMENT: Illegal to list model *...TRUNCATED of 1036 bytes",
        _long,
    ),
    Row(
        "reload-relative",
        "a relative base path",
        "INVALID_ARGUMENT: Expected model relative to have an absolute path or URI*",
        lambda scene: scene.refused(scene.model("relative", base_path="relative")),
    ),
    Row(
        "reload-other-platform",
        "another platform of a known model",
        "INVALID_ARGUMENT: Illegal to change a model's platform. For model base *",
        _changed(model_platform="other"),
    ),
    Row(
        "reload-no-platform",
        "no platform of a known model",
        "INVALID_ARGUMENT: Illegal setting neither *model_platform, model name is *",
        _changed(model_platform=""),
    ),
    Row(
        "reload-type-and-platform",
        "platform and type of a known model",
        "INVALID_ARGUMENT: Illegal setting both *model_platform, model name is *",
        _changed(model_type=_TENSORFLOW),
    ),
    Row("reload-type", "the deprecated type without a platform", "OK", _type_alone),
]
_WAITS = [
    Row(
        "reload-added",
        "a new model is available when the call is answered",
        "status 0, 1 AVAILABLE",
        _added,
    ),
    Row(
        "reload-partly",
        "a new model that fails; the others are served, and the same list again is fine",
        f"{_FAILED % ('bad', 1)}*; 1 AVAILABLE; OK",
        _partly,
    ),
    Row(
        "reload-highest",
        "the highest version fails, and a lower one is available",
        f"{_FAILED % ('highest', 2)}*; 2 END NOT_FOUND: *, 1 AVAILABLE",
        _highest,
    ),
    Row(
        "reload-waits",
        "a new model is waited for",
        "pending, then OK, 1 AVAILABLE",
        _waits,
    ),
    Row(
        "reload-known",
        "a new version of a known model is not waited for",
        "OK, 2 LOADING, 1 AVAILABLE, then 2 AVAILABLE, 1 AVAILABLE",
        _known,
    ),
    Row(
        "reload-abandoned",
        "a call whose caller gives up goes on, and the next one waits for it",
        "DEADLINE_EXCEEDED; pending; y=[[3.0]] by base 123 serving_default; OK; 1 AVAILABLE",
        _abandoned,
    ),
    Row(
        "reload-stuck",
        "a run of another model that does not end delays the load",
        "pending; y=[[3.0]] by base 123 serving_default; OK; OK",
        _stuck,
    ),
    Row(
        "reload-no-path",
        "a base path that does not exist stops the discovery of all models' versions",
        f"pending; 1 AVAILABLE; NOT_FOUND: *; {_FAILED % ('pathless', 1)}*",
        _without_versions("pathless", lambda path: None),
    ),
    Row(
        "reload-no-version",
        "a base path without versions is waited for",
        f"pending; 2 AVAILABLE, 1 END; NOT_FOUND: *; {_FAILED % ('childless', 1)}*",
        _without_versions("childless", lambda path: path.joinpath("notes").mkdir(parents=True)),
    ),
    Row(
        "reload-absent-version",
        "a version that is named but does not exist is waited for",
        "pending; NOT_FOUND: *; OK; 2 AVAILABLE",
        _absent_version,
    ),
    Row(
        "reload-reloaded",
        "a model that was removed, and after its end is added again",
        "OK; OK; 1 AVAILABLE",
        _reloaded,
    ),
    Row(
        "reload-logging",
        "logging of requests is refused when the models are served",
        "INVALID_ARGUMENT: No request-logger-creator provided.; 1 AVAILABLE",
        _logging,
    ),
    Row("reload-metrics", "the increase of an unknown metric", "/unknown 0", _metrics),
    Row(
        "reload-empty",
        "an empty list unloads all models",
        "OK; 123 END; NOT_FOUND: Servable not found for request: Latest(base)",
        _emptied,
    ),
]
# The suite runs them last, since the engine then accepts no configuration any more.
LAST = [
    Row(
        "reload-unknown-platform",
        "an unknown platform of a new model is refused",
        "INVALID_ARGUMENT: *unsupported platform*",
        lambda scene: scene.refused(scene.model("platform", model_platform="other")),
    ),
    Row(
        "reload-corrected-platform",
        "it cannot be corrected under the same name",
        "INVALID_ARGUMENT: Illegal to change a model's platform. For model platform *",
        lambda scene: scene.refused(scene.model("platform")),
    ),
    Row(
        "reload-new-without-platform",
        "no platform of a new model is refused",
        "INVALID_ARGUMENT: Illegal setting neither *model_platform, model name is *",
        lambda scene: scene.refused(scene.model("nothing", model_platform="")),
    ),
    Row(
        "reload-for-ever",
        "and no further list is accepted",
        "INVALID_ARGUMENT: Illegal setting neither *model_platform, model name is *",
        lambda scene: scene.push(timeout=STILL),
    ),
]
ROWS = [*_REFUSED, *_WAITS]
