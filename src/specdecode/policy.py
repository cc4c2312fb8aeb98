"""How much to draft: the arithmetic of choosing, at each step, what is expected to give the most tokens per second.

Two things are learned while decoding: how often drafts are accepted (`Acceptance`), and what passes cost here and now
(`PassCost`). `Policy` decides by them, and keeps account of what speculation has lost or gained. It knows no model, no
drafter and no token, and no clock but what it is told. The constants were chosen on recorded texts and made-up ones
(docs/experiments.md); none of them is sharp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

UNKNOWN = 0.5  # acceptance of a first token of which nobody says anything
PRIOR = 3.0  # trials: what a drafter's own estimate counts as
HALF_LIFE = 40.0  # trials of a kind after which one counts half
IDLE_HALF_LIFE = 128.0  # steps after which what was learned counts half

NOISE, UNSURE, DRIFT, SHAPE_DRIFT = 0.02, 0.09, 0.0005, 0.0002  # variances of the logarithm of a time
MOST = 3.0  # standard deviations: a pass that took longer still was disturbed

# In plain passes: what speculation may lose before it has gained anything, what a single step may lose beyond what is
# left of that, and what it may lose again of earlier gains, for texts change.
START, STEP, CREDIT = 0.7, 1.0, 5.0
SHARE = 0.01  # of the decoding time, which it may lose as well
ODDS = 2.0  # times its price: what a step must be expected to gain once all that is lost
MARGIN = 0.01  # tokens: less than this is no gain
FAINT = 0.02  # nodes of a smaller value are not worth ranking
RECENT = 0.95  # what a step counts at the next one, for the rate of late

Kind = tuple[int, int, int]  # a source, and a level of its confidence, 0; or -1 - depth, and the rank among siblings
ANY = -1  # session, or rank: that one of the siblings is accepted


class Acceptance:
    """The chance that a node is accepted once its parent is, by kind: Beta posteriors whose old trials fade. What is
    known of all sessions is what one expects of each, which then speaks for itself.

    step: counts the steps, by which what was learned ages."""

    def __init__(self) -> None:
        self.step = 0
        self._trials: dict[tuple[int, Kind], tuple[float, float, int]] = {}  # accepted, refused, step of the last

    def mean(self, kind: Kind, prior: float, session: int = ANY) -> float:
        if session != ANY:
            prior = self.mean(kind, prior)
        accepted, refused, last = self._trials.get((session, kind), (0.0, 0.0, self.step))
        weight = math.pow(0.5, (self.step - last) / IDLE_HALF_LIFE)
        return (accepted * weight + prior * PRIOR) / ((accepted + refused) * weight + PRIOR)

    def by_depth(self, source: int, most: int, rank: int, session: int = ANY) -> list[float]:
        """[most] the means of a source's nodes of a rank by depth; of each one expects what is known of the one
        before."""
        means = [UNKNOWN]
        for depth in range(most):
            means.append(self.mean((source, -1 - depth, rank), means[-1], session))
        return means[1:]

    def see(self, kind: Kind, accepted: bool, session: int = ANY) -> None:
        for key in [(ANY, kind)] if session == ANY else [(ANY, kind), (session, kind)]:
            yes, no, last = self._trials.get(key, (0.0, 0.0, self.step))
            weight = math.pow(0.5, 1 / HALF_LIFE + (self.step - last) / IDLE_HALF_LIFE)
            self._trials[key] = (yes * weight + accepted, no * weight + (not accepted), self.step)


class PassCost:
    """Seconds of a pass: the measured curve, corrected by the passes of this generation.

    The correction is a factor for the machine's present speed, which plain passes tell, and one for each doubling of
    rows, by which passes with drafts differ from it. Both are tracked by a Kalman filter on the logarithm of the time,
    without covariances. So neither a busy machine nor a curve of other days misleads for long."""

    def __init__(self, curve: Callable[[int, float], float]) -> None:
        self._curve = curve
        self._context = -1
        self._seconds: list[float] = []  # [rows - 1] of the curve, at the context last asked for
        self._speed, self._speed_variance = 0.0, UNSURE
        self._shape: dict[int, tuple[float, float]] = {}  # rows.bit_length() -> mean, variance
        self._factors: dict[int, float] = {}  # of the shape, as far as they were asked for since it changed

    def plain(self, rows: int, context: float) -> float:
        """Seconds without drafts, of a row a session."""
        return self._table(rows, context)[rows - 1] * math.exp(self._speed)

    @property
    def doubt(self) -> float:
        """The share by which `plain` may well be too long. It grows until a plain pass is seen again."""
        return 1 - math.exp(-math.sqrt(self._speed_variance))

    def drafted(self, rows: int, extra: int, context: float) -> list[float]:
        """[extra + 1] seconds with 0, 1, 2, ... extra nodes."""
        table, speed = self._table(rows + extra, context), math.exp(self._speed)
        seconds = [table[rows - 1] * speed]
        for n in range(rows + 1, rows + extra + 1):
            bits = n.bit_length()
            if bits not in self._factors:
                self._factors[bits] = math.exp(self._shape_of(bits)[0])
            seconds.append(table[n - 1] * speed * self._factors[bits])
        return seconds

    def see(self, rows: int, extra: int, context: float, seconds: float) -> float:
        """Learn from a pass. Returns its seconds, or as many of them as are believable."""
        self._speed_variance = min(UNSURE, self._speed_variance + DRIFT)
        expected = math.log(self._table(rows + extra, context)[rows + extra - 1]) + self._speed
        mean, variance, bits = 0.0, 0.0, (rows + extra).bit_length()
        if extra:
            mean, variance = self._shape_of(bits)
            variance += SHAPE_DRIFT
        total = self._speed_variance + variance + NOISE
        most = MOST * math.sqrt(total)
        surprise = min(max(math.log(seconds) - expected - mean, -most), most)
        gain = self._speed_variance / total
        self._speed += gain * surprise
        if extra:
            self._shape[bits] = (mean + variance / total * surprise, variance * (1 - variance / total))
            self._factors.clear()
        else:  # only a plain pass tells the two apart
            self._speed_variance *= 1 - gain
        return math.exp(expected + mean + surprise)

    def _shape_of(self, bits: int) -> tuple[float, float]:
        """What was not seen yet is expected to differ as much as its nearest neighbour."""
        if bits in self._shape or not self._shape:
            return self._shape.get(bits, (0.0, UNSURE))
        return self._shape[min(self._shape, key=lambda seen: abs(seen - bits))][0], UNSURE

    def _table(self, rows: int, context: float) -> list[float]:
        """[rows or more] the curve's seconds. Contexts are taken in strides, within which costs hardly change."""
        stride = int(context) // 64 * 64 + 32
        if stride != self._context:
            self._context, self._seconds = stride, []
        while len(self._seconds) < rows:
            self._seconds.append(self._curve(len(self._seconds) + 1, stride))
        return self._seconds


@dataclass(frozen=True)
class Choice:
    """nodes:    how many of the nodes that were offered to draft, the first ones.
    expected: tokens that they, and those decided on before, are expected to add to the step.
    seconds, plain: what the pass is expected to take, and to take without drafts.
    reason:   why no more than that.
    """

    nodes: int
    expected: float
    seconds: float
    plain: float
    reason: str


class Policy:
    """One generation's choices. A step is `begin`, any number of `depth`, `choose`, `timed`, and `emitted` a session.

    The value of a node is the chance that it is reached and accepted: the product of the chances along its path. Nodes
    of values v make a step longer by T(rows + nodes) - T(rows) seconds, their price, in which decoding would have given
    rate * price tokens otherwise; rate is what plain decoding gives, or what was reached of late. The best step is that
    of the greatest sum(v) - rate * price, which maximises tokens per second in the long run (Dinkelbach 1967). Without
    drafts it is 0.

    Never slower: whatever estimates say, what may be lost on them is bounded (START, STEP, SHARE), beyond which a step
    has to be expected to gain ODDS times its price. The first step is plain, for nothing else tells what plain
    decoding costs today, and as doubt about that grows, only steps are drafted that are worth it all the same."""

    def __init__(self, curve: Callable[[int, float], float]) -> None:
        self.acceptance, self.cost = Acceptance(), PassCost(curve)
        self._rows, self._context, self._plain = 1, 0.0, 0.0  # of this step; seconds
        self._nodes, self._draft_s = 0, 0.0
        self._recent_tokens = self._recent_s = 0.0
        self._elapsed = self._loss = 0.0  # seconds; gains are negative losses

    def begin(self, rows: int, context: float) -> None:
        """A step of `rows` sessions, which hold `context` tokens in the mean."""
        self.acceptance.step += 1
        self._rows, self._context = rows, context
        self._plain = self.cost.plain(rows, context)

    @property
    def rate(self) -> float:
        """Tokens per second of plain decoding, or of late where that is more."""
        reached = self._recent_tokens / self._recent_s if self._recent_s else 0.0
        return max(self._rows / self._plain, reached)

    @property
    def room(self) -> float:
        """Seconds that may still be lost."""
        return START * self._plain + SHARE * self._elapsed - self._loss

    def depth(self, source: int, most: int, offered: Sequence[float], step_s: float | None, width: float = 1.0) -> int:
        """How many tokens deep a source should draft for each session, decided before it does; 0 is not at all.

        offered: by depth, the value of the nodes there already, all sessions together.
        step_s:  seconds that it takes for each token of depth, None while that is not known: one token will tell.
        width:   nodes that it drafts for each token of depth, siblings included."""
        if most < 1 or self.acceptance.step == 1:
            return 0
        nodes = [math.ceil(self._rows * width * d) for d in range(most + 1)]
        seconds = self.cost.drafted(self._rows, nodes[-1], self._context)
        room = self.room
        best, worth_best, reach, gain = 0, MARGIN, 1.0, 0.0
        for d, mean in enumerate(self.acceptance.by_depth(source, most, ANY), 1):
            reach *= mean
            gain += max(0.0, self._rows * reach - (offered[d - 1] if d <= len(offered) else 0.0))
            price = seconds[nodes[d]] - self._plain + (step_s or 0.0) * d
            if price > room:
                break
            if step_s is None:
                return 1
            worth = gain - self.rate * (price + self.cost.doubt * self._plain)
            if worth > worth_best:
                best, worth_best = d, worth
        return best

    def choose(self, values: Sequence[float], decided: Sequence[float] = (), draft_s: float = 0.0) -> Choice:
        """How many of the nodes of these values, which fall, to draft beside those decided on.

        decided: the values of those; draft_s: the seconds spent on drafting them."""
        fixed = len(decided)
        drafting = fixed or values
        seconds = self.cost.drafted(self._rows, fixed + len(values), self._context) if drafting else [self._plain]
        nodes, expected, reason = 0, 0.0, "nothing was offered"
        if values and self.acceptance.step == 1:
            reason = "the first step is plain"
        elif values:
            base = seconds[fixed] if fixed else self._plain * (1 - self.cost.doubt)
            prices = [s - base for s in seconds[fixed + 1 :]]
            nodes, expected, reason = self._best(values, prices, max((*decided, *values)))
        self._nodes, self._draft_s = fixed + nodes, draft_s
        return Choice(nodes, expected + sum(decided), seconds[self._nodes], self._plain, reason)

    def _best(self, values: Sequence[float], prices: Sequence[float], likeliest: float) -> tuple[int, float, str]:
        """The number of nodes, their value together, and why no more. prices: [n] seconds of the first, the first two,
        ...; likeliest: the chance that anything is accepted."""
        room, once = self.room, STEP * self._plain
        nodes, expected, worth_best, gain, reason = 0, 0.0, MARGIN, 0.0, "more is not worth its time"
        for n, (value, price) in enumerate(zip(values, prices, strict=True), 1):
            gain += value
            worth = gain - self.rate * price
            if worth <= worth_best:
                continue
            covered = price * (1 - likeliest) <= room and price <= room + once
            if covered or (price <= once and gain >= ODDS * self.rate * price):
                nodes, expected, worth_best = n, gain, worth
            else:
                reason = "more must not be risked"
        return nodes, expected, reason if nodes < len(values) else "more was not offered"

    def timed(self, seconds: float) -> None:
        """What the pass took."""
        spent = self._draft_s + self.cost.see(self._rows, self._nodes, self._context, seconds)
        self._elapsed += spent
        if self._nodes or self._draft_s:
            self._loss += spent - self._plain
        self._recent_tokens *= RECENT
        self._recent_s = self._recent_s * RECENT + spent

    def emitted(self, tokens: int) -> None:
        """What the step gave one of the sessions. Each token beyond the first has saved its share of a plain pass."""
        if tokens > 1:
            self._loss = max(self._loss - (tokens - 1) * self._plain / self._rows, -CREDIT * self._plain)
        self._recent_tokens += tokens
