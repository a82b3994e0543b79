"""A course: easier rows first, one lesson after another, each until the model has it or its rows are used up.

`Course` is a batch sampler over the rows of all lessons followed by the ordinary rows. Where lessons ended is part of the run's
state, so a resumed run draws the same batches again.
"""

from collections.abc import Iterator, Sequence

from train.batches import LengthBuckets
from train.run_state import RunState


class Course:
    """Batches of `lessons`, then of `ordinary` rows, epoch after epoch, `num_batches` in all.

    Indices count through the rows of all lessons and then the ordinary ones. A lesson is over when the mean decision loss of its last
    `RECENT_BATCHES` batches lies below `until`.
    """

    def __init__(
        self, lessons: Sequence[LengthBuckets], ordinary: LengthBuckets, *, run: RunState, until: float, num_batches: int
    ) -> None:
        self.lessons, self.ordinary, self.run, self.until, self.num_batches = list(lessons), ordinary, run, until, num_batches
        self.batch_size, self.drop_last = ordinary.batch_size, False

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[list[int]]:
        for number, batch in enumerate(self._batches(), start=1):
            self._given = number
            yield batch
            if number == self.num_batches:
                return

    def _batches(self) -> Iterator[list[int]]:
        self._given, offset = 0, 0
        for level, lesson in enumerate(self.lessons):
            for batch in lesson:
                if self._over(level):
                    break
                yield [offset + index for index in batch]
            self.run.end_lesson(level, self._given)
            offset += len(lesson.lengths)
        epoch = 0
        while True:
            self.ordinary.set_epoch(epoch)
            yield from ([offset + index for index in batch] for batch in self.ordinary)
            epoch += 1

    def _over(self, level: int) -> bool:
        """While a resumed run draws what it has seen, the recorded ends count; after that, how well the lesson goes."""
        if level < len(self.run.lesson_ends):
            return self._given >= self.run.lesson_ends[level]
        return self._given >= self.run.batches_seen and self.run.lesson_learned(self.until)
