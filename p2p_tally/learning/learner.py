"""One node's model and what a round does with it: train, vote, distill, export, merge, evaluate, snapshot.

It knows torch and calls the functions of the method's row. It knows no sockets, no clock and no other peer's model.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.ids import NodeName
from p2p_tally.learning.answering import answering
from p2p_tally.learning.answers import votes
from p2p_tally.learning.by_rows import ByRows, vector_of
from p2p_tally.learning.consensus import Answer
from p2p_tally.learning.data import Augment, Examples, Normalise, batch_seed
from p2p_tally.learning.data.probes import ProbePool
from p2p_tally.learning.evaluation import Evaluation, evaluation_batch
from p2p_tally.learning.exchanges.local_steps import LocalBatch
from p2p_tally.learning.exposed import feature_width, outputs_of
from p2p_tally.learning.feedback import ErrorFeedback
from p2p_tally.learning.late import Late
from p2p_tally.learning.methods import method_of
from p2p_tally.learning.norms import ProbeStatistics, training_mode
from p2p_tally.learning.objectives import probe_loss
from p2p_tally.learning.optimiser import FlatAdamW
from p2p_tally.learning.own import Own
from p2p_tally.learning.parameters import FlatParameters, joined
from p2p_tally.learning.saved.about import About
from p2p_tally.learning.saved.file import model_bytes
from p2p_tally.learning.schedule import Channel, begin_alike, sends_changes
from p2p_tally.learning.state_parts import LATE, lacking_parts, not_carried_over, part_of
from p2p_tally.learning.subjects import subject_of
from p2p_tally.learning.voting.skew import local_loss
from p2p_tally.learning.voting.voter import Voter


class Learner:
    """A model and the private data it learns from."""

    def __init__(
        self,
        name: NodeName,
        federation: Federation,
        model: nn.Module,
        classes: int,
        private: Examples,
        probes: ProbePool,
        test: Examples,
        device: torch.device | str = "cpu",
        normalise: Normalise | None = None,
        augment: Augment | None = None,
        about: About | None = None,
        exam: Examples | None = None,
        second: nn.Module | None = None,
    ) -> None:
        """`second`: the model that the method's row keeps besides."""
        self.name = name
        self.about = about
        self.federation = federation
        self.method = method_of(federation)
        self.device = torch.device(device)
        self.classes = classes
        self.private = private
        self.probes = probes
        self.test = test
        self.normalise = normalise or (lambda x: x)
        self.augment = augment or (lambda x, _: x)
        self.model = model
        self.features = feature_width(model) if self.method.sends.features else 0  # how many are sent for a class
        self._outputs = outputs_of(model, features=self.method.sends.features)
        self.parameters = FlatParameters(model, self.device)
        self.statistics = ProbeStatistics(model, probes, evaluation_batch, lambda x: self.normalise(x.to(self.device)))
        training_mode(model)
        self.optimiser = self._adamw()
        # FedDF's merged model has its own optimiser. It gets the same gradients at every peer, so the peers' merged
        # models stay the same.
        self.student = self._adamw() if self.method.distils_merged else self.optimiser
        start = self.parameters.vector
        self.anchor = start.clone() if self.method.proximal else None  # [W]
        beside = None if second is None else second.to(self.device)
        self.merge_step = self.method.step_of_merges(start, federation, None if beside is None else vector_of(beside))
        self._models = (ByRows(model),) if beside is None else (ByRows(model), ByRows(beside))
        self.feedback = ErrorFeedback(start, begin_alike(federation)) if sends_changes(federation) else None
        self.voter = Voter(federation, classes, self.device, exam)
        self._local_loss = local_loss(private, classes, federation.balance, self.device)
        self.batches = torch.Generator().manual_seed(batch_seed(federation.seed, name))
        self._subject = subject_of(federation, probes, private, classes, self.batches)
        self.late = Late() if federation.overlap else None
        self._seen: tuple[int, Tensor, Tensor | None] | None = None  # round, outputs and labels, from vote to distill

    def _adamw(self) -> FlatAdamW:
        flat, settings = self.parameters, self.federation
        return FlatAdamW(flat.vector, flat.gradient, settings.lr, settings.weight_decay)

    # --- the steps of a round

    def train(self, round: int = 1) -> None:
        """K local steps on private data, or those of them that the method's row takes in a round."""
        settings = self.federation
        self._seed_dropout()
        drawn = torch.randint(len(self.private), (settings.local_steps, settings.batch), generator=self.batches)
        for step, indices in enumerate(drawn):
            if not self.method.takes_step(settings, self.name, round, step):
                continue
            x, y = self._on_device(self.private.take(indices))
            assert y is not None
            x = self.normalise(self.augment(x, self.batches))
            self._step(self._local_gradient(x, y), self.optimiser, self.anchor)

    def _local_gradient(self, x: Tensor, y: Tensor) -> list[Tensor]:
        """In one piece or several."""
        flat, rule = self.parameters, self.method.local_gradient

        def here() -> list[Tensor]:
            return flat.backward(self._local_loss(self.model(x).flatten(0, -2), y.flatten()))

        if rule is None:
            return here()
        batch = LocalBatch(lambda: joined(here()), x[None], y.flatten()[None], self._models)
        return [rule(batch, flat.vector[None], self.merge_step.state, self.federation)]

    def vote(self, round: int) -> Answer:
        """This node's answer for the probes of a round, or for the classes. The forward pass is kept for `distill`."""
        self.voter.examine(round, self.log_probabilities)
        return self.answer(round, self.voter.calibrated(self._subject.read(self._look(round).detach())))

    def answer(self, round: int, logits: Tensor) -> Answer:  # noqa: ARG002 - for those who answer otherwise
        """What these logits [P, C] make this node answer. Where nothing is sent, votes: for the record only."""
        answer = self.method.answer or votes
        assert self._seen is not None, "an answer follows a look"
        return self._subject.answer(answer(logits, self.federation), self._seen[2])

    def _seed_dropout(self) -> None:
        """Seed torch's global generator from this node's own: modules such as dropout draw from the global one."""
        seed = int(torch.randint(2**62, (), generator=self.batches))
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _look(self, round: int) -> Tensor:
        """Outputs [P, O] for the examples that a round's answers are made of."""
        self._seed_dropout()
        x, labels = self._on_device(self._subject.sample(round))
        self._seen = round, self._outputs(self.normalise(x)), None if labels is None else labels.flatten()
        return self._seen[1]

    def distill(
        self, round: int, answers: Sequence[Answer], channel: Channel, weights: np.ndarray | None = None
    ) -> None:
        """One step on what was looked at, towards the answers at hand, own included, in the order of names.

        `weights` [N] or [N, P]: see consensus.py; None: all answers count the same.
        """
        assert self._seen is not None, "distill follows vote"
        if self._seen[0] != round or self.method.distils_merged:
            self._look(round)  # the model has changed since it voted
        (_, outputs, labels), self._seen = self._seen, None
        rows = self._subject.rows(self._target(answers, weights), labels) if channel.speaks else None
        loss = (self.method.loss or probe_loss(self.federation, self.method.weighs_disagreement))(
            outputs, labels, rows, channel.label, channel.consensus, self.classes
        )
        self._step(self.parameters.backward(loss), self.student, None)

    def _target(self, answers: Sequence[Answer], weights: np.ndarray | None) -> Tensor:
        assert self.method.target is not None, "only a method that sends answers has a channel that speaks"
        target = self.method.target(answers, self.classes, self.federation, weights)
        return torch.from_numpy(np.asarray(target, np.float32)).to(self.device)

    def _step(self, gradient: list[Tensor], optimiser: FlatAdamW, anchor: Tensor | None) -> None:
        flat = self.parameters
        if anchor is not None:  # the gradient of mu / 2 |w - anchor|^2
            for piece, own, start in zip(gradient, flat.pieces(flat.vector), flat.pieces(anchor), strict=True):
                piece.add_(own - start, alpha=self.federation.mu)
        if self.federation.clip:
            norms = [piece.nan_to_num_(nan=0.0).norm() for piece in gradient]
            norm = norms[0] if len(norms) == 1 else torch.stack(norms).norm()
            for piece in gradient:
                piece.mul_((self.federation.clip / (norm + 1e-6)).clamp(max=1.0))
        optimiser.step(gradient)

    # --- merging

    def export(self) -> np.ndarray:
        """All parameters [W]. On the CPU this is a view: the next step changes it."""
        return self.parameters.export()

    def contribution(self, round: int) -> np.ndarray:  # noqa: ARG002 - for those who contribute something else
        """What this node gives to the merge of a round [W]."""
        return self.method.contributed(self.merge_step, self.parameters.vector).cpu().numpy()

    def merge(self, average: np.ndarray, kept: np.ndarray | None = None, since: np.ndarray | None = None) -> None:
        """Take the mean of the peers' parameters [W] by the method's rule. Optimiser state stays as it is.

        `kept` [W]: the part of this node's change that was not sent, where merges send changes since a common model.
        `since` [W]: what this node had when the merge began, if it has trained on: then the merge's change is added.
        """
        taken = self.method.taken(torch.from_numpy(average).to(self.device), self._own, self.federation)
        merged = self.merge_step.step(taken)
        if self.anchor is not None:
            self.anchor.copy_(merged)
        if self.feedback is not None and kept is not None:
            self.feedback.settle(merged.cpu().numpy(), kept)
        own = self.parameters.vector
        self.parameters.replace(merged if since is None else own + (merged - torch.from_numpy(since).to(self.device)))

    def _own(self) -> Own:
        state, examples = self.merge_step.state, self.private
        return Own(self.name, self.federation, self.model, examples, self.normalise, self.classes, state)

    # --- what a newcomer gets from a member

    def handed_over(self) -> dict[str, Tensor]:
        """What is the same, or alike, at all peers that merge, without a copy: parameters, and what the next merge and
        the model that it makes depend on. Nothing where peers never merge."""
        if not self.federation.merge_every:
            return {}
        shared = ("parameters", "anchor", "outer.", "student.", "feedback.base")
        return {key: tensor for key, tensor in self.state().items() if key.startswith(shared)}

    def take_over(self, state: dict[str, Tensor]) -> None:
        """Take what a peer handed over. Data, optimiser and generator stay this node's own."""
        for key, tensor in self.handed_over().items():
            tensor.copy_(state[key])
        if self.feedback is not None:
            self.feedback.taken_over()

    # --- looking

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """The model as it answers, in evaluation mode: no gradients, no dropout, BatchNorm by the statistics of the
        probes."""
        rule, flat = self.method.answering, self.parameters
        with answering(rule, flat.vector[None], self.merge_step.state, self.federation):
            try:
                self.statistics.refresh()
                with torch.no_grad():
                    yield
            finally:
                training_mode(self.model)

    def refresh_statistics(self) -> None:
        """Have in the model's BatchNorm layers what an evaluation would use now."""
        with self._looking():
            pass

    def _logs(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(self.normalise(x.to(self.device))).flatten(0, -2)
        return logits.log_softmax(-1).cpu()

    def log_probabilities(self, x: Tensor) -> Tensor:
        """log f(x) [P, C] on the CPU, for measurements; x as it is stored."""
        with self._looking():
            return self._logs(x)

    def evaluate(self) -> Evaluation:
        """Accuracy and cross-entropy on the test set."""
        right, loss, count = 0, 0.0, 0
        with self._looking():
            for indices in torch.split(torch.arange(len(self.test)), evaluation_batch(self.test)):
                x, y = self.test.take(indices)
                assert y is not None
                y = y.flatten()
                logs = self._logs(x)
                right += int((logs.argmax(-1) == y).sum())
                loss += float(F.nll_loss(logs, y, reduction="sum"))
                count += len(y)
        return Evaluation(right / count, loss / count)

    def probe_accuracy(self, round: int) -> tuple[int, int]:
        """How many of a round's labelled probes this node gets right, and of how many."""
        x, _ = self.probes.sample(round)
        right, of = self.probes.count_right(round, self.log_probabilities(x).argmax(-1).numpy())
        return int(right), of

    def model_file(self) -> bytes:
        """The model as a safetensors file that says what it is, for use anywhere."""
        with self._looking():
            return model_bytes(self.model, self.about)

    def save_model(self, path: Path) -> None:
        path.write_bytes(self.model_file())

    # --- state

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of everything that the next step depends on, as named tensors."""
        return {key: tensor.detach().cpu().clone() for key, tensor in self.state().items()}

    def state(self) -> dict[str, Tensor]:
        """The same without a copy: the next step changes these tensors."""
        state = {"parameters": self.parameters.vector, "generator": self.batches.get_state()}
        optimisers = {"optimiser": self.optimiser}
        if self.student is not self.optimiser:
            optimisers["student"] = self.student
        for label, optimiser in optimisers.items():
            state |= {f"{label}.{key}": value for key, value in optimiser.state.items()}
        if self.anchor is not None:
            state["anchor"] = self.anchor
        state |= {f"outer.{key}": value for key, value in self.merge_step.state.items()}
        if self.feedback is not None:
            state |= {f"feedback.{key}": value for key, value in self.feedback.state.items()}
        state |= {f"{LATE}{key}": value for key, value in (self.late.state if self.late else {}).items()}
        return state | {f"voter.{key}": value for key, value in self.voter.state.items()}

    def restore(self, state: dict[str, Tensor]) -> list[str]:
        """The inverse of `snapshot`, bit for bit. Returns what could not be carried over from a snapshot that was taken
        with other options: parts that begin anew here, and parts that are of no use here."""
        kept, held = len(state["parameters"]), len(self.parameters)
        if kept != held:
            raise ConfigError(f"--resume: the checkpoint is of a model of {kept} parameters, this one has {held}")
        own = self.state()
        lacking = lacking_parts(own.keys(), state, self.method.name)
        for key, tensor in own.items():
            if key != "generator" and not key.startswith(("voter.", LATE)) and part_of(key) not in lacking:
                tensor.copy_(state[key])
        if self.anchor is not None and "anchor" in lacking:
            self.anchor.copy_(self.parameters.vector)
        self.voter.restore({key: state[f"voter.{key}"] for key in self.voter.state if f"voter.{key}" in state})
        if self.feedback is not None:
            self.feedback.restored()
        self.batches.set_state(state["generator"])
        if self.late is not None:
            self.late.restore({key.removeprefix(LATE): state[key] for key in state if key.startswith(LATE)})
        unused = {part_of(key) for key in state.keys() - self.state().keys()}
        return not_carried_over(lacking, unused)

    def _on_device(self, examples: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor | None]:
        x, y = examples
        return x.to(self.device), None if y is None else y.to(self.device)
