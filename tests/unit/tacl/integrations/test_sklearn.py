"""`TaclClassifier` in scikit-learn's own hands."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_estimator_repr,
    check_get_params_invariance,
    check_mixin_order,
    check_no_attributes_set_in_init,
    check_set_params,
)

import tacl
from tacl import embedded
from tacl.embedded.parquet import png
from tacl.integrations.sklearn import TaclClassifier

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(90, 4))
Y = np.array(["ash", "birch", "cedar"])[X[:, :3].argmax(-1)]
OTHER = RANDOM.normal(size=(40, 4)) + 3


def classifier(**given: object) -> TaclClassifier:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))
    return TaclClassifier(tacl.wrap(net), **{"steps": 40, "learning_rate": 1e-2, **given})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "check",
    [
        check_get_params_invariance,
        check_set_params,
        check_no_attributes_set_in_init,
        check_estimator_repr,
        check_mixin_order,
    ],
)
def test_it_is_an_estimator(check: object) -> None:
    assert callable(check)
    check("TaclClassifier", classifier())


def test_a_clone_is_fitted_to_the_same_vector() -> None:
    one = classifier().fit(X, Y)
    other = clone(one)
    assert isinstance(other, TaclClassifier)
    with pytest.raises(NotFittedError):
        other.predict(X)
    assert other.fit(X, Y).vector_.digest == one.vector_.digest


def test_probabilities_and_classes() -> None:
    fitted = classifier().fit(X, Y)
    shares = fitted.predict_proba(X)
    assert shares.shape == (90, 3)
    np.testing.assert_allclose(shares.sum(-1), 1)
    assert (fitted.predict(X) == fitted.classes_[shares.argmax(-1)]).all()
    labels = torch.from_numpy(X).float(), torch.from_numpy(np.unique(Y, return_inverse=True)[1])
    found = tacl.evaluate(fitted.base, labels, fitted.head_, {"own": fitted.vector_})
    assert fitted.score(X, Y) == pytest.approx(found.accuracy({"own": 1.0}))
    assert fitted.score(X, Y) > found.accuracy({}) + 0.1


def test_cross_validation_and_a_pipeline() -> None:
    assert cross_val_score(classifier(), X, Y, cv=3).mean() > 0.7
    assert make_pipeline(StandardScaler(), classifier()).fit(X, Y).score(X, Y) > 0.8


def test_it_is_held_off_other_tasks() -> None:
    rows = torch.from_numpy(OTHER).float(), torch.zeros(40, dtype=torch.int64)
    moved = [
        tacl.evaluate(fitted.base, rows, fitted.head_, {"own": fitted.vector_}).tau_jp("own")
        for fitted in (classifier().fit(X, Y), classifier(against=[OTHER]).fit(X, Y))
    ]
    assert moved[1] < 0.5 * moved[0]


def test_numbers_are_no_classes() -> None:
    with pytest.raises(ValueError, match="continuous"):
        classifier().fit(X, X[:, 0])


def test_labels_may_be_a_column() -> None:
    with pytest.warns(DataConversionWarning, match="column-vector"):
        fitted = classifier().fit(X, Y[:, None])
    assert (fitted.predict(X) == classifier().fit(X, Y).predict(X)).all()


@pytest.mark.parametrize(
    ("dtype", "names"), [("Int64", ("0", "1")), ("boolean", ("False", "True"))]
)
def test_classes_of_a_column_that_may_have_gaps_keep_their_names(
    dtype: str, names: tuple[str, str]
) -> None:
    _, numbers = np.unique(Y, return_inverse=True)
    fitted = classifier().fit(X, pd.Series(numbers % 2).astype(dtype))
    assert fitted.head_.classes == names


def test_pictures_may_be_a_column_of_a_frame() -> None:
    images, labels = embedded.generate("digits", 20, seed=0)
    raws = [png(image) for image in images]
    frame = pd.DataFrame({"image": raws})
    fitted = TaclClassifier(tacl.load("embedded"), steps=2).fit(frame, labels)
    assert (fitted.predict_proba(frame) == fitted.predict_proba(raws)).all()
    with pytest.raises(ValueError, match="1d array"):
        fitted.predict(frame.assign(more=raws))


def test_one_of_a_loaded_base_can_be_kept_in_a_file() -> None:
    """As joblib does; and the text tower of a copy is its own."""
    images, labels = embedded.generate("digits", 20, seed=0)
    raws = [png(image) for image in images]
    fitted = TaclClassifier(tacl.load("embedded"), steps=2).fit(raws, labels)
    again = pickle.loads(pickle.dumps(fitted))
    assert (again.predict_proba(raws) == fitted.predict_proba(raws)).all()
    assert torch.equal(again.base.encode_texts(["a cat"]), fitted.base.encode_texts(["a cat"]))


def test_a_module_may_read_integers() -> None:
    torch.manual_seed(0)
    tokens = torch.randint(0, 9, (60, 5))
    labels = (tokens == 3).any(-1).numpy()
    net = torch.nn.Sequential(torch.nn.Embedding(9, 8), torch.nn.Flatten(), torch.nn.Linear(40, 8))
    fitted = TaclClassifier(tacl.wrap(net), steps=60, learning_rate=1e-2).fit(tokens, labels)
    assert fitted.score(tokens, labels) > 0.8
    assert fitted.predict(tokens).dtype == labels.dtype
