"""Makes classical.npz of tests/interop/onnx/exported: scikit-learn, XGBoost and LightGBM through onnxruntime.

    pip install scikit-learn skl2onnx onnxmltools onnxconverter-common xgboost lightgbm onnxruntime
    python tests/helpers/onnx_exports_classical.py

For each model there are NAME/model (the file's bytes), NAME/input and NAME/output/OUTPUT.
"""

from pathlib import Path

import lightgbm as lgb
import numpy as np
import onnxruntime
import xgboost as xgb
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from sklearn import (
    compose,
    ensemble,
    impute,
    linear_model,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 4)).astype(np.float32)
number = (X @ [1, 2, -1, 0.5] + 0.1 * rng.normal(size=60)).astype(np.float32)
numbers = np.stack([number, -2 * number], 1)
two, three = np.where(X[:, 0] + X[:, 1] > 0, 7, 3), np.digitize(X[:, 0], [-0.5, 0.5])
kinds = rng.integers(0, 3, (60, 2)).astype(np.int64)
lacking = X.copy()
lacking[::7, 1] = np.nan
small = {"n_estimators": 3, "max_depth": 2}

SKLEARN = {
    "linear": (linear_model.LinearRegression(), X, numbers),
    "logistic": (linear_model.LogisticRegression(), X, two),
    "logistic of three": (linear_model.LogisticRegression(), X, three),
    "linear machine": (svm.LinearSVC(), X, three),
    "machine, rbf": (svm.SVR(), X, number),
    "machine, polynomial": (svm.SVR(kernel="poly"), X, number),
    "machine, sigmoid": (svm.SVR(kernel="sigmoid"), X, number),
    "machine, linear": (svm.SVR(kernel="linear"), X, number),
    "one class": (svm.OneClassSVM(), X, None),
    "classifying machine": (svm.SVC(), X, two),
    "classifying machine of three": (svm.SVC(), X, three),
    "scaler": (preprocessing.StandardScaler(), X, None),
    "min-max": (preprocessing.MinMaxScaler(), X, None),
    "l1": (preprocessing.Normalizer("l1"), X, None),
    "l2": (preprocessing.Normalizer("l2"), X, None),
    "max": (preprocessing.Normalizer("max"), X, None),
    "binarizer": (preprocessing.Binarizer(threshold=0.2), X, None),
    "polynomial": (preprocessing.PolynomialFeatures(2), X, None),
    "one-hot": (preprocessing.OneHotEncoder(sparse_output=False), kinds, None),
    "ordinal": (preprocessing.OrdinalEncoder(), kinds, None),
    "imputer": (impute.SimpleImputer(), lacking, None),
    "tree": (tree.DecisionTreeRegressor(max_depth=3), X, number),
    "tree of two": (tree.DecisionTreeClassifier(max_depth=3), X, two),
    "tree of three": (tree.DecisionTreeClassifier(max_depth=3), X, three),
    "forest": (ensemble.RandomForestRegressor(**small, random_state=0), X, numbers),
    "forest of two": (ensemble.RandomForestClassifier(**small, random_state=0), X, two),
    "boosting": (ensemble.GradientBoostingRegressor(**small), X, number),
    "boosting of two": (ensemble.GradientBoostingClassifier(**small), X, two),
    "boosting of three": (ensemble.GradientBoostingClassifier(**small), X, three),
    "ada": (ensemble.AdaBoostClassifier(n_estimators=3), X, two),
    "network": (neural_network.MLPClassifier((8,), max_iter=50, random_state=0), X, three),
    "pipeline": (
        pipeline.make_pipeline(
            impute.SimpleImputer(), preprocessing.StandardScaler(), linear_model.LogisticRegression()
        ),
        lacking,
        two,
    ),
    "columns": (
        pipeline.make_pipeline(
            compose.ColumnTransformer(
                [
                    ("a", preprocessing.StandardScaler(), [0, 2]),
                    ("b", preprocessing.MinMaxScaler(), [1, 3]),
                ]
            ),
            linear_model.Ridge(),
        ),
        X,
        number,
    ),
}


def exported():
    for name, (model, x, y) in SKLEARN.items():
        model.fit(x) if y is None else model.fit(x, y)
        zipped = hasattr(model, "predict_proba") and name != "logistic"  # One of them keeps its ZipMap.
        yield name, to_onnx(model, x[:1], options={"zipmap": False} if zipped else None), x[:12]
    given = {"initial_types": [("x", FloatTensorType([None, 4]))]}
    for name, y in (("", number), (" of two", (two > 3).astype(int)), (" of three", three)):
        kind = (xgb.XGBClassifier, lgb.LGBMClassifier) if name else (xgb.XGBRegressor, lgb.LGBMRegressor)
        yield f"xgboost{name}", convert_xgboost(kind[0](**small).fit(X, y), **given), X[:12]
        light = kind[1](**small, min_child_samples=5, verbose=-1).fit(X, y)
        yield f"lightgbm{name}", convert_lightgbm(light, **given, zipmap=False), X[:12]


found = {}
for name, model, x in exported():
    session = onnxruntime.InferenceSession(model.SerializeToString())
    found[f"{name}/model"] = np.frombuffer(model.SerializeToString(), np.uint8)
    found[f"{name}/input"] = x
    for y, array in zip(
        session.get_outputs(), session.run(None, {session.get_inputs()[0].name: x}), strict=True
    ):
        if isinstance(array, list):  # What ZipMap makes: a dict of each row.
            array = np.array([[row[key] for key in sorted(row)] for row in array], np.float32)
        found[f"{name}/output/{y.name}"] = array
np.savez_compressed(Path(__file__).parents[1] / "interop/onnx/exported/classical.npz", **found)
