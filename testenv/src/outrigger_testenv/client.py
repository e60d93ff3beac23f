"""A client that scores pandas frames, without exposing tensors, messages or gRPC."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import grpc
import numpy as np
import pandas as pd

from outrigger.v1 import (
    model_pb2,
    model_pb2_grpc,
    prediction_pb2_grpc,
    validation_pb2,
    validation_pb2_grpc,
)
from outrigger.v1 import prediction_pb2 as pb
from outrigger_testenv import requests
from outrigger_testenv.errors import OutriggerError

Treatments = pd.DataFrame | Sequence[pd.DataFrame]

_MAX_MESSAGE = 256 << 20


def channel_options(target: str) -> list[tuple[str, Any]]:
    """Channel options for large messages, and a valid authority for a socket's path."""
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", _MAX_MESSAGE),
        ("grpc.max_send_message_length", _MAX_MESSAGE),
        # Gives every channel a connection of its own; channels of one process share one by default.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if target.startswith("unix:"):
        options.append(("grpc.default_authority", "localhost"))
    return options


def selector(model: str, tag: str | None = None, digest: str | None = None) -> pb.ModelSelector:
    """Selects a model by name, and by tag or digest if one is given."""
    if tag and digest:
        raise ValueError("a tag or a digest, not both")
    return pb.ModelSelector(name=model, tag=tag, digest=digest)


class Client:
    """A connection to a control plane at "host:port" or "unix:/path".

    `credentials` turn TLS on; those of grpc.composite_channel_credentials also send a token.
    """

    def __init__(
        self,
        target: str,
        timeout: float = 30.0,
        credentials: grpc.ChannelCredentials | None = None,
    ):
        self.target = target
        self.timeout = timeout
        options = channel_options(target)
        self.channel = (
            grpc.secure_channel(target, credentials, options)
            if credentials
            else grpc.insecure_channel(target, options)
        )
        self.prediction = prediction_pb2_grpc.PredictionServiceStub(self.channel)
        self.model_service = model_pb2_grpc.ModelServiceStub(self.channel)
        self.validation = validation_pb2_grpc.ValidationServiceStub(self.channel)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self.channel.close()

    def predict(
        self,
        model: str,
        users: pd.DataFrame,
        treatments: Treatments | None = None,
        *,
        tag: str | None = None,
        digest: str | None = None,
        form: str = requests.TABLE,
        users_per_call: int = 16,
        options: pb.ResponseOptions | None = None,
        timeout: float | None = None,
    ) -> pd.DataFrame:
        """Scores the treatments of every user.

        `users` has one row per user, its index the users' ids. An id is the user's routing key: a
        user has the same arm of a canary in each call, whoever else is in it. `treatments` is one
        frame for all users or one per user, its index the treatments' ids. The result has one row
        per score: `user`, `treatment`, the score and the model's other outputs by name, and the
        `digest` that answered. Raises OutriggerError.
        """
        batches = self.encode(users, treatments, form=form, users_per_call=users_per_call)
        frames = []
        for batch in batches:
            batch.model.CopyFrom(selector(model, tag, digest))
            if options is not None:
                batch.options.CopyFrom(options)
            frames.append(_frame(batch, self.call_batch(batch, timeout)))
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    def validate_frame(
        self,
        model: str,
        users: pd.DataFrame,
        treatments: Treatments | None,
        expected: Sequence[Any],
        *,
        rtol: float = 1e-4,
        atol: float = 1e-5,
        **how: Any,
    ) -> pd.DataFrame:
        """Scores as `predict` does, and compares the scores with the expected ones.

        `expected` has a score for each row of the result, or an array of them for each user. The
        result of `predict` has the further columns `expected`, `difference` (the score less the
        expected one) and `agrees` (`|difference| <= atol + rtol * |expected|`). `how` is passed to
        `predict`. Raises OutriggerError, and ValueError for another number of expected scores.
        """
        frame = self.predict(model, users, treatments, **how)
        values = np.concatenate([np.atleast_1d(np.asarray(each, float)) for each in expected])
        if len(values) != len(frame):
            raise ValueError(f"{len(values)} expected scores for {len(frame)} scores")
        difference = frame["score"].to_numpy(float) - values
        agrees = np.abs(difference) <= atol + rtol * np.abs(values)
        return frame.assign(expected=values, difference=difference, agrees=agrees)

    def score_file(
        self,
        model: str,
        input: str,
        scores: str = "",
        *,
        tag: str | None = None,
        digest: str | None = None,
        token: str | None = None,
        progress: Callable[[validation_pb2.ValidationProgress], Any] | None = None,
        timeout: float | None = None,
        **settings: Any,
    ) -> validation_pb2.ValidationReport:
        """Scores the rows of a file in the server's `validation.directory`; returns the report.

        The client must be connected to the admin listener. `input` and `scores` are paths below
        that directory; without `scores` none are written. `settings` are further fields of
        ValidateFileRequest, `progress` is called about every second. Without a `timeout` in seconds
        the server's own applies. Raises OutriggerError.
        """
        message = validation_pb2.ValidateFileRequest(
            model=selector(model, tag, digest), input=input, scores=scores, **settings
        )
        metadata = [("authorization", f"Bearer {token}")] if token else None
        try:
            for event in self.validation.ValidateFile(message, timeout=timeout, metadata=metadata):
                if event.HasField("report"):
                    return event.report
                if progress is not None:
                    progress(event.progress)
        except grpc.RpcError as error:
            raise OutriggerError.from_rpc(error) from None
        raise RuntimeError("the run ended without a report")

    @staticmethod
    def encode(
        users: pd.DataFrame,
        treatments: Treatments | None,
        *,
        form: str = requests.TABLE,
        users_per_call: int = 16,
    ) -> Iterator[pb.BatchPredictRequest]:
        """The calls that `predict` makes, without model and options."""
        shared = isinstance(treatments, pd.DataFrame)
        if treatments is not None and not shared and len(treatments) != len(users):
            raise ValueError(f"{len(users)} users, but treatments for {len(treatments)}")
        offered = request({}, treatments, form) if shared else None
        batch = pb.BatchPredictRequest()
        for at, features in enumerate(requests.rows(users)):
            own = None if shared or treatments is None else treatments[at]
            message = request(features, own, form, key=str(users.index[at]))
            if offered is not None:
                message.MergeFrom(offered)
            batch.requests.append(message)
            if len(batch.requests) == users_per_call or at + 1 == len(users):
                yield batch
                batch = pb.BatchPredictRequest()

    def call(self, message: pb.PredictRequest, timeout: float | None = None) -> pb.PredictResponse:
        """Calls Predict with this message. Raises OutriggerError."""
        return self._invoke(self.prediction.Predict, message, timeout)

    def call_batch(
        self, message: pb.BatchPredictRequest, timeout: float | None = None
    ) -> pb.BatchPredictResponse:
        """Calls BatchPredict with this message. Raises OutriggerError."""
        return self._invoke(self.prediction.BatchPredict, message, timeout)

    def explain(
        self, message: pb.PredictRequest, timeout: float | None = None
    ) -> tuple[dict[str, np.ndarray], pb.ExplainResponse]:
        """The tensors that the engine would receive, as arrays, and the whole answer.

        With `options.contributions` the answer has contributions.
        """
        answer = self._invoke(self.prediction.Explain, message, timeout)
        return {tensor.name: array(tensor) for tensor in answer.tensors}, answer

    def contributions(self, message: pb.PredictRequest, timeout: float | None = None) -> np.ndarray:
        """The contributions of each treatment's features to its margins, as an array of
        [treatments, margins, columns + 1], of which the last column is the base value.

        `explain` names the features of the columns. Of sparse rows the columns are those of
        `contributions_by_id`. Raises OutriggerError.
        """
        return self.contributions_by_id(message, timeout)[1]

    def contributions_by_id(
        self, message: pb.PredictRequest, timeout: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The ids of the columns that the contributions are of, ascending, and the array of
        `contributions`. There are no ids if the model has dense rows. Raises OutriggerError.
        """
        asked = pb.PredictRequest()
        asked.CopyFrom(message)
        asked.options.contributions = True
        _, answer = self.explain(asked, timeout)
        given = answer.contributions
        columns = np.array(given.columns, np.uint64)
        width = sum(feature.length for feature in given.features) + len(columns) + 1
        values = np.array(given.values, np.float32).reshape(-1, given.margins, width)
        return columns, values

    def models(self) -> Mapping[str, model_pb2.Model]:
        """The models that the control plane knows, by name."""
        answer = self._invoke(self.model_service.ListModels, model_pb2.ListModelsRequest(), None)
        return {model.name: model for model in answer.models}

    def model(self, name: str) -> model_pb2.Model:
        """One model with its history."""
        wanted = model_pb2.GetModelRequest(name=name)
        return self._invoke(self.model_service.GetModel, wanted, None).model

    def load(self, model: str, tag: str | None = None, digest: str | None = None) -> None:
        """Loads a model by the cheapest request there is. Raises OutriggerError."""
        # The request has no features. A model that requires some refuses it, but is loaded by then.
        try:
            self._invoke(
                self.prediction.Explain, pb.PredictRequest(model=selector(model, tag, digest)), None
            )
        except OutriggerError as error:
            if error.reason != "FEATURE_MISSING":
                raise

    def serving_digest(self, model: str, tag: str = "latest") -> str:
        """The digest that serves the tag; empty if there is none."""
        known = self.models().get(model)
        return (
            next((each.serving_digest for each in known.tags if each.name == tag), "")
            if known
            else ""
        )

    def wait_until_serving(
        self, model: str, digest: str, tag: str = "latest", timeout: float = 60.0
    ) -> None:
        """Waits until the digest serves the tag."""
        self.wait_until(
            lambda: self.serving_digest(model, tag) == digest,
            timeout,
            what=f"{model}:{tag} is not served by {digest}",
        )

    @staticmethod
    def wait_until(holds: Callable[[], Any], timeout: float = 60.0, what: str = "") -> None:
        """Waits until `holds()` is true; a control plane that does not answer counts as false."""
        deadline = time.monotonic() + timeout
        last: Exception | None = None
        while True:
            try:
                if holds():
                    return
            except OutriggerError as error:
                last = error
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what or 'still not so'} after {timeout} s") from last
            time.sleep(0.05)

    def _invoke(self, method: Any, message: Any, timeout: float | None) -> Any:
        try:
            return method(message, timeout=self.timeout if timeout is None else timeout)
        except grpc.RpcError as error:
            raise OutriggerError.from_rpc(error) from None


def request(
    user: Mapping[str, Any],
    treatments: pd.DataFrame | None,
    form: str = requests.TABLE,
    key: str = "",
) -> pb.PredictRequest:
    """Makes one user's request, without a model."""
    message = pb.PredictRequest(request_id=key, routing_key=key)
    if user:
        message.user_features.CopyFrom(requests.user_features(dict(user)))
    if treatments is None:
        return message
    if form == requests.TABLE:
        message.treatment_table.CopyFrom(requests.table(treatments))
    elif form == requests.KEY_VALUE:
        message.treatments.extend(requests.treatments(treatments))
    else:
        raise ValueError(f"no form {form!r}: {requests.TABLE!r} or {requests.KEY_VALUE!r}")
    return message


def array(tensor: pb.ExplainedTensor) -> np.ndarray:
    """Converts an explained tensor to numpy; texts become bytes objects."""
    if tensor.dtype == "string":
        return np.array(list(tensor.texts), object).reshape(tuple(tensor.shape))
    dtype = np.dtype(tensor.dtype).newbyteorder("<")
    return np.frombuffer(tensor.content, dtype).reshape(tuple(tensor.shape))


def _frame(batch: pb.BatchPredictRequest, answer: pb.BatchPredictResponse) -> pd.DataFrame:
    frames = [
        _user_frame(asked, response)
        for asked, response in zip(batch.requests, answer.responses, strict=True)
    ]
    return pd.concat(frames, ignore_index=True)


def _user_frame(asked: pb.PredictRequest, response: pb.PredictResponse) -> pd.DataFrame:
    if response.WhichOneof("output") == "score":
        scores = pb.ScoreList(values=[response.score])
        if response.HasField("score_values"):
            scores = response.score_values
        columns: dict[str, Any] = {"treatment": [None]}
    else:
        scores = response.scores
        ids = list(asked.treatment_table.ids) or [each.id for each in asked.treatments]
        columns = {"treatment": [ids[row] for row in list(scores.indices) or range(len(ids))]}
    values = _values(scores)
    columns["score"] = values[:, scores.score_column]
    if scores.width > 1:
        columns["values"] = list(values)
    rows = len(values)
    for name, output in sorted(response.additional_outputs.items()):
        values = _values(output)
        # An output of the user is repeated in every treatment's row.
        if len(values) != rows:
            values = np.resize(values, (rows, values.shape[1]))
        columns[name] = list(values) if output.width > 1 else values[:, 0]
    frame = pd.DataFrame(columns)
    frame.insert(0, "user", asked.routing_key)
    frame["digest"] = response.model.digest
    return frame


def _values(scores: pb.ScoreList) -> np.ndarray:
    """All values as [rows, width]; integers exactly."""
    if scores.integers:
        values = np.array(scores.integers, np.int64)
    else:
        values = np.array(scores.values, np.float32)
    return values.reshape(-1, max(scores.width, 1))
