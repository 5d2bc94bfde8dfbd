"""A small log-linear model that ranks a turn's candidates, no call among them."""

import math
from collections.abc import Mapping, Sequence
from operator import mul

Row = tuple[Sequence[float], Sequence[str]]
"""A candidate's features, and its marks: features of one tool, each worth 1."""
Example = tuple[Sequence[Row], Sequence[int]]
"""A turn's rows, and the indexes of those that came true."""

_RATE = 0.15
_SHRINK = 0.002
_SMALL = 1e-3
_MAX_MARKS = 5_000


class Ranker:
    """Weights of features and marks, learned by gradient steps (AdaGrad)."""

    def __init__(self, prior: Mapping[str, float]) -> None:
        """Start from the `prior` weights; rows hold features in their order."""
        self.names = tuple(prior)
        self.weights = list(prior.values())
        self.marks: dict[str, float] = {}
        self.examples = 0.0
        self._squares = [1.0] * len(self.weights)
        self._mark_squares: dict[str, float] = {}

    def chances(self, rows: Sequence[Row]) -> list[float]:
        """Return each row's chance; they sum to 1."""
        weights = self.weights
        marks = self.marks
        scores = [
            sum(map(mul, weights, features)) + sum([marks.get(mark, 0.0) for mark in own])
            for features, own in rows
        ]
        top = max(scores)
        powers = [math.exp(score - top) for score in scores]
        total = sum(powers)
        return [power / total for power in powers]

    def learn(self, example: Example) -> None:
        """Take one step towards the rows that came true."""
        self.examples += 1
        rows, right = example
        part = 1 / len(right)
        slope = [0.0] * len(self.weights)
        for index, (row, chance) in enumerate(zip(rows, self.chances(rows), strict=True)):
            error = (part if index in right else 0.0) - chance
            if abs(error) > _SMALL:
                for position, feature in enumerate(row[0]):
                    if feature:
                        slope[position] += error * feature
                for mark in row[1]:
                    self._step_mark(mark, error)
        for position, value in enumerate(slope):
            if value:
                self._squares[position] += value * value
                self.weights[position] += _RATE / math.sqrt(self._squares[position]) * value

    def settle(self, examples: float, squares: float) -> None:
        """Go on from weights that `examples` taught, each with about as many `squares`."""
        self.examples = examples
        self._squares = [1.0 + examples * squares] * len(self.weights)

    def add(self, other: "Ranker") -> None:
        """Average the weights with another's, by the examples behind them."""
        total = self.examples + other.examples
        if not total:
            return
        mine, theirs = self.examples / total, other.examples / total
        self.weights = [
            mine * one + theirs * two for one, two in zip(self.weights, other.weights, strict=True)
        ]
        self.marks = {
            mark: mine * self.marks.get(mark, 0.0) + theirs * other.marks.get(mark, 0.0)
            for mark in {**self.marks, **other.marks}
        }
        self.examples = total

    def _step_mark(self, mark: str, error: float) -> None:
        squares = self._mark_squares.get(mark, 1.0) + error * error
        self._mark_squares[mark] = squares
        weight = self.marks.get(mark, 0.0)
        self.marks[mark] = weight + _RATE / math.sqrt(squares) * (error - _SHRINK * weight)
        if len(self.marks) > _MAX_MARKS:
            order = sorted(self.marks, key=lambda name: abs(self.marks[name]))
            for name in order[: _MAX_MARKS // 4]:
                del self.marks[name]
                self._mark_squares.pop(name, None)
