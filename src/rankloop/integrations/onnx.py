"""ONNX graphs: a linear model or a network, with normalization inside the graph.

Input `features` (documents, d) and output `scores` (documents,), both float64, for one list in the caller's order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from rankloop.core.errors import InvalidParameter, MissingExtra
from rankloop.core.learner import Learner
from rankloop.core.scaling import unwrapped
from rankloop.core.types import Array
from rankloop.integrations.linear_model import Exported, Normalization, linear_model, sizes_of, young_note
from rankloop.learners.neural.network_learner import NetworkLearner
from rankloop.learners.neural.olranknet import OLRankNet

OPSET, IR = 17, 8  # ONNX 1.12


def onnx_graph(learner: Learner, names: Sequence[str], normalization: Normalization, name: str) -> Exported:
    """Export a linear model or a network of `rankloop.learners.neural`."""
    graph, inner = _Graph(len(names)), unwrapped(learner)
    graph.scale(normalization, *sizes_of(learner, len(names)))
    notes = ["numbers are float64; give one list at a time"]
    if isinstance(inner, NetworkLearner | OLRankNet):
        notes += [*_network(graph, inner, len(names)), *young_note(learner)]
    else:
        found = linear_model(learner, names, normalization, name)
        graph.line(found.weights, found.base)
        notes += found.notes
        if found.base is not None:
            notes.append("documents must be in the order of the baseline ranking")
    return Exported(name, graph.bytes(name, names, normalization, notes), "application/octet-stream", notes)


def _network(graph: _Graph, inner: NetworkLearner[Any] | OLRankNet, width: int) -> list[str]:
    """The scores of a network, and of the linear model beside it; returns notes for the user."""
    notes, gate = [], 1.0
    network = inner.model_.network if isinstance(inner, OLRankNet) else inner.model_
    if network.net not in ("two-layer", "three-layer"):
        raise InvalidParameter(
            f"net is {network.net!r:.60}, your own module; PyTorch exports it: torch.onnx.export(learner.module(), …)"
        )
    if isinstance(inner, OLRankNet):
        gate, theta = inner.model_.unknown_gate, inner.model_.line.theta_
        if theta.size:
            base = float(theta[-1]) if theta.size > width else None
            graph.line(theta[:width], base)
            if base is not None:
                notes.append("documents must come in your order, which counts")
            notes.append(f"the network counts {gate:g}, as for queries that it was not trained on")
    if network.weights_.size == 0 and not graph.terms:
        raise InvalidParameter(f"{type(inner).__name__} has learned nothing yet; come back after some clicks")
    if int(network.features_[0]) not in (0, width):
        raise InvalidParameter(f"there are {width} names for {int(network.features_[0])} features; give the learner's")
    if gate > 0.0 and network.weights_.size:
        members = network.weights_.astype(np.float32).astype(np.float64)  # as the learner computes
        for weights in members:
            graph.network(network.net, weights, network.width, gate / len(members))
    return notes


class _Graph:
    """Nodes of a graph, and the terms whose sum is the scores."""

    def __init__(self, width: int) -> None:
        try:
            import onnx
        except ModuleNotFoundError:
            raise MissingExtra("ONNX", "onnx", "export") from None
        self._onnx = onnx
        self._width, self._nodes, self._constants = width, list[Any](), list[Any]()
        self.rows, self.terms = "features", list[str]()

    def scale(self, normalization: Normalization, middle: Array, spread: Array) -> None:
        """Normalize the features."""
        if normalization == "stream":
            rows = self._add("Sub", self.rows, self._constant(middle))
            rows = self._add("Div", rows, self._constant(np.where(spread > 0.0, spread, 1.0)))
            self.rows = self._add("Mul", rows, self._constant((spread > 0.0).astype(np.float64)))
        elif normalization == "query-minmax":
            low = self._add("ReduceMin", self.rows, axes=[0], keepdims=1)
            high = self._add("ReduceMax", self.rows, axes=[0], keepdims=1)
            span = self._add("Sub", high, low)
            same = self._add("Equal", span, self._constant(np.zeros(())))
            safe = self._add("Where", same, self._constant(np.ones(())), span)
            self.rows = self._add("Div", self._add("Sub", self.rows, low), safe)

    def line(self, weights: Array, base: float | None) -> None:
        """Add x·θ and the term of the baseline ranking."""
        self.terms.append(self._add("MatMul", self.rows, self._constant(weights)))
        if base is not None:
            count = self._add("Gather", self._add("Shape", "features"), self._constant(np.array(0)))
            one = self._constant(np.array(1))
            places = self._add("Range", one, self._add("Add", count, one), one)
            logarithms = self._add("Log", self._add("Cast", places, to=self._onnx.TensorProto.DOUBLE))
            self.terms.append(self._add("Mul", logarithms, self._constant(np.array(-base))))

    def network(self, net: str, weights: Array, width: int, share: float) -> None:
        """Add a share of a network's scores; it computes on float32 inputs."""
        proto, d = self._onnx.TensorProto, self._width
        rows = self._add("Cast", self._add("Cast", self.rows, to=proto.FLOAT), to=proto.DOUBLE)
        if net == "two-layer":
            layers, last = [np.sqrt(2.0) * weights[: width * d].reshape(width, d)], weights[width * d :]
        else:
            split = width * 2 * d
            doubled = weights[:split].reshape(width, 2, d).sum(1) * np.sqrt(0.5)  # both copies have the same input
            layers, last = [doubled, weights[split : split + width * width].reshape(width, width)], weights[-width:]
        for layer in layers:
            rows = self._add("Relu", self._add("MatMul", rows, self._constant(np.ascontiguousarray(layer.T))))
        self.terms.append(self._add("MatMul", rows, self._constant(share * np.sqrt(width) * last)))

    def bytes(self, name: str, names: Sequence[str], normalization: str, notes: Sequence[str]) -> bytes:
        """Return the file of the model."""
        helper, proto = self._onnx.helper, self._onnx.TensorProto
        self._nodes.append(helper.make_node("Sum", self.terms, ["scores"]))
        graph = helper.make_graph(
            self._nodes,
            "rankloop",
            [helper.make_tensor_value_info("features", proto.DOUBLE, ["documents", self._width])],
            [helper.make_tensor_value_info("scores", proto.DOUBLE, ["documents"])],
            self._constants,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, producer_name="rankloop", opset_imports=opsets, ir_version=IR)
        model.doc_string = "; ".join(notes)
        about = {"name": name, "features": json.dumps(list(names)), "normalization": normalization}
        helper.set_model_props(model, about)
        self._onnx.checker.check_model(model)
        data: bytes = model.SerializeToString(deterministic=True)
        return data

    def _add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        made = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, inputs, [made], **attributes))
        return made

    def _constant(self, value: Array) -> str:
        made = f"constant_{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.asarray(value), made))
        return made
