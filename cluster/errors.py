"""One table: error class, by its name -> exit code of the command line -> HTTP status.

Codes are part of the contract, as scripts branch on them: a code is never given to another class.
0 is success, 1 a defect of the program, 2 a command line that cannot be parsed.
"""

from __future__ import annotations

from tacl import errors as e

UNEXPECTED = (1, 500)

TABLE: dict[type[e.TaclError], tuple[int, int]] = {
    # the encoder
    e.BaseNotFound: (10, 404),
    e.BadBase: (11, 422),
    e.BaseMismatch: (12, 409),
    e.BadCheckpoint: (13, 422),
    # data
    e.DataNotFound: (20, 404),
    e.BadColumns: (21, 422),
    e.BadSample: (22, 422),
    e.EmptySplit: (23, 422),
    e.TooFewClasses: (24, 422),
    e.LabelOutOfRange: (25, 422),
    e.ModalityMismatch: (26, 422),
    e.SameData: (27, 409),
    # names and recipes
    e.BadName: (30, 422),
    e.NameTaken: (31, 409),
    e.UnknownTask: (32, 404),
    e.UnknownVector: (33, 404),
    e.BadRecipe: (34, 422),
    e.MixedRegimes: (35, 409),
    e.NoComposition: (36, 409),
    e.Inexact: (39, 409),
    e.AliasMoved: (37, 409),
    e.Erased: (38, 410),
    # running
    e.RunFailed: (40, 500),
    e.NotPlaceable: (41, 409),
    e.CorruptBlob: (42, 500),
    e.BadConfig: (43, 422),
    e.StorageUnavailable: (44, 503),
    e.UnknownRun: (45, 404),
    # the installation
    e.ClusterNotRunning: (50, 503),
    e.HomeInUse: (51, 409),
    # requests
    e.NotAuthenticated: (60, 401),
    e.NotAllowed: (61, 403),
    e.UnknownUser: (62, 404),
    e.TooLarge: (63, 413),
    e.Overloaded: (64, 503),
    e.TooLate: (65, 504),
    e.TooMany: (66, 429),
}


NAMES = {cls.__name__: cls for cls in TABLE}  # as they are sent


def _nearest(error: BaseException) -> type[e.TaclError] | None:
    """The nearest class in the table, so that a subclass needs no row of its own."""
    return next((cls for cls in type(error).__mro__ if cls in TABLE), None)


def _codes(error: BaseException) -> tuple[int, int]:
    cls = _nearest(error)
    return TABLE[cls] if cls else UNEXPECTED


def name_of(error: BaseException) -> str:
    """The error's name for clients, which may know no subclass."""
    return (_nearest(error) or type(error)).__name__


def exit_code(error: BaseException) -> int:
    return _codes(error)[0]


def http_status(error: BaseException) -> int:
    return _codes(error)[1]
