"""Everything that can be wrong with what a person asked for, as classes; one message says it all.

A message says what was asked, what was found and what to do. Exit codes and HTTP statuses are
given to these classes elsewhere: here is only the meaning.
"""

from __future__ import annotations


class TaclError(Exception):
    """Base of every error that is an answer to a person, not a defect of the program."""


class BaseNotFound(TaclError):
    """The base model, or its weights, is not where it was looked for."""


class BadBase(TaclError):
    """The base model was found and cannot be used as asked."""


class BadSample(TaclError):
    """One input is unreadable: a truncated image, or something that is not text."""


class DataNotFound(TaclError):
    """No data set at the path or id that was given."""


class BadColumns(TaclError):
    """The columns of a data set do not say which is the input and which is the class."""


class EmptySplit(TaclError):
    """A part of the data that is needed has no rows."""


class TooFewClasses(TaclError):
    """A classification task needs at least two classes with rows."""


class LabelOutOfRange(TaclError):
    """A label is outside the list of classes."""


class ModalityMismatch(TaclError):
    """Images were given to a base model of texts, or texts to one of images."""


class SameData(TaclError):
    """A task has exactly these rows already."""


class BadName(TaclError):
    """A name has illegal characters."""


class NameTaken(TaclError):
    """A name is in use already."""


class UnknownTask(TaclError):
    """No task of this name."""


class UnknownVector(TaclError):
    """A recipe names a vector, version or alias that does not exist."""


class BadRecipe(TaclError):
    """A recipe cannot be read, or contradicts itself."""


class MixedRegimes(TaclError):
    """Linearized and ordinary vectors do not add up: they live in different models."""


class BaseMismatch(TaclError):
    """A vector belongs to another base model."""


class BadCheckpoint(TaclError):
    """A checkpoint or adapter is not there, cannot be read, or does not fit the base."""


class Inexact(TaclError):
    """A model was asked for in a form that answers otherwise than it does, by too much."""


class NoComposition(TaclError):
    """A question was asked before a model was composed."""


class AliasMoved(TaclError):
    """An alias was moved by somebody else since it was looked at: compare and swap failed."""


class Erased(TaclError):
    """What was asked for was erased at its owner's wish, and cannot come back."""


class CorruptBlob(TaclError):
    """A stored file is truncated, altered or of another format than its name says."""


class NotPlaceable(TaclError):
    """The cluster will never have the room that was asked for."""


class RunFailed(TaclError):
    """A run ended without its result."""


class UnknownRun(TaclError):
    """No run of this id, or none that whoever asks may know of."""


class StorageUnavailable(TaclError):
    """The blob store, the registry or a hub cannot be read or written now; later it may."""


class ClusterNotRunning(TaclError):
    """There is no cluster to talk to."""


class HomeInUse(TaclError):
    """The home directory belongs to another running cluster, or to another base."""


class BadConfig(TaclError):
    """A setting has an impossible value, or settings contradict each other."""


class NotAuthenticated(TaclError):
    """Nobody is known by the token that was sent, or none was sent."""


class NotAllowed(TaclError):
    """Whoever asks is known and may not do that."""


class UnknownUser(TaclError):
    """No user of this name, or none that whoever asks may know of."""


class TooLarge(TaclError):
    """More bytes, pixels or characters than are taken at once."""


class Overloaded(TaclError):
    """Too much waits already; the same is worth trying again soon."""


class TooMany(TaclError):
    """One user has, or asks for, more than one user may have; worth trying again in `seconds`."""

    def __init__(self, message: str, seconds: int = 60) -> None:
        super().__init__(message)
        self.seconds = seconds

    def __reduce__(self) -> tuple[type[TooMany], tuple[str, int]]:
        return TooMany, (str(self), self.seconds)


class TooLate(TaclError):
    """There was no answer within the time that was given."""
