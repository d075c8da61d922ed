"""The errors that a person's request can meet, one class for each kind.

A message says what was asked, what was found and what to do. This file has only the meanings; exit
codes and HTTP statuses are assigned to these classes in `cluster/errors.py`.
"""

from __future__ import annotations


class TaclError(Exception):
    """Base of every error that is due to a request or its circumstances, not to a defect."""


class BaseNotFound(TaclError):
    """The base model or its weights were not found at the given place."""


class BadBase(TaclError):
    """The base model was found but cannot be used as requested."""


class BadSample(TaclError):
    """One input is unreadable: a truncated image, or something that is not text."""


class DataNotFound(TaclError):
    """There is no data set at the given path or id."""


class BadColumns(TaclError):
    """The columns of a data set do not say which is the input and which is the class."""


class EmptySplit(TaclError):
    """A required part of the data has no rows."""


class TooFewClasses(TaclError):
    """A classification task needs at least two classes with rows."""


class LabelOutOfRange(TaclError):
    """A label is outside the list of classes."""


class ModalityMismatch(TaclError):
    """Images were given to a base model of texts, or texts to one of images."""


class SameData(TaclError):
    """Another task already has exactly these rows."""


class BadName(TaclError):
    """A name has illegal characters."""


class NameTaken(TaclError):
    """A name is already in use."""


class UnknownTask(TaclError):
    """There is no task of this name."""


class UnknownVector(TaclError):
    """A recipe names a vector, version or alias that does not exist."""


class BadRecipe(TaclError):
    """A recipe cannot be read, or contradicts itself."""


class MixedRegimes(TaclError):
    """Linearized and ordinary vectors cannot be added: they belong to different models."""


class BaseMismatch(TaclError):
    """A vector belongs to another base model."""


class BadCheckpoint(TaclError):
    """A checkpoint or adapter does not exist, cannot be read, or does not fit the base model."""


class Inexact(TaclError):
    """A model was requested in a form whose answers differ too much from its own."""


class NoComposition(TaclError):
    """A query was made before a model was composed."""


class AliasMoved(TaclError):
    """An alias was moved by somebody else since it was read: compare and swap failed."""


class Erased(TaclError):
    """What was requested was erased at its owner's wish, and cannot be restored."""


class CorruptBlob(TaclError):
    """A stored file is truncated, altered, or not of the format that its name says."""


class NotPlaceable(TaclError):
    """The cluster can never have the resources that were requested."""


class RunFailed(TaclError):
    """A run ended without a result."""


class UnknownRun(TaclError):
    """There is no run of this id, or the requester may not know of it."""


class StorageUnavailable(TaclError):
    """The blob store, the registry or a hub cannot be read or written now; retry later."""


class ClusterNotRunning(TaclError):
    """There is no running cluster to connect to."""


class HomeInUse(TaclError):
    """The home directory belongs to another running cluster, or to another base."""


class BadConfig(TaclError):
    """A setting has an impossible value, or settings contradict each other."""


class NotAuthenticated(TaclError):
    """The token that was sent belongs to no user, or none was sent."""


class NotAllowed(TaclError):
    """The requester is known but may not do that."""


class UnknownUser(TaclError):
    """There is no user of this name, or the requester may not know of them."""


class TooLarge(TaclError):
    """More bytes, pixels or characters than are accepted at once."""


class Overloaded(TaclError):
    """Too many requests are waiting already; retry soon."""


class TooMany(TaclError):
    """A user has, or requests, more than one user may have; retry after `seconds`."""

    def __init__(self, message: str, seconds: int = 60) -> None:
        super().__init__(message)
        self.seconds = seconds

    def __reduce__(self) -> tuple[type[TooMany], tuple[str, int]]:
        return TooMany, (str(self), self.seconds)


class TooLate(TaclError):
    """There was no answer within the given time."""
