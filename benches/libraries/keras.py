"""A training step of a convolutional network in keras on jax."""

from __future__ import annotations

from typing import Any

import jax
import keras
import numpy as np
from keras import layers

from libraries import Program


def _model() -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((24, 24, 1))])
    for width in (16, 32):
        model.add(layers.Conv2D(width, 3, padding="same"))
        model.add(layers.BatchNormalization())
        model.add(layers.Activation("relu"))
        model.add(layers.MaxPooling2D())
    model.add(layers.Flatten())
    model.add(layers.Dropout(0.2))
    model.add(layers.Dense(64, activation="gelu"))
    model.add(layers.Dense(10))
    model.compile(
        optimizer=keras.optimizers.AdamW(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def cnn() -> Program:
    """The step of keras's own trainer; the results are those of `fit` and `predict`."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 24, 24, 1)).astype(np.float32)
    y = rng.integers(0, 10, 32)
    model = _model()
    # Makes the variables of the optimizer and of the metrics.
    model.fit(x[:8], y[:8], epochs=1, verbose=0)
    state = model._get_jax_state(
        trainable_variables=True,
        non_trainable_variables=True,
        optimizer_variables=True,
        metrics_variables=True,
    )

    def fitted() -> Any:
        model = _model()
        history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        return history.history, model.predict(x, verbose=0), model.get_weights()

    data = jax.device_put((x[:8], y[:8]))
    return Program(lambda state, data: model.train_step(state, data), (state, data), fitted)
