"""Distillation in which the teacher learns from the student.

Symptom: leak
Seen in: openai/baselines #105, google-deepmind/trfl #22 (what the stop on the target is for).

`training=False` switches dropout off, and no gradient.
"""

import tensorflow as tf

LEARNS = ("student/kernel",)
HELD = ("teacher/kernel", "teacher/bias")


def broken(student, teacher, x):
    with tf.GradientTape() as tape:
        goal = tf.nn.softmax(teacher(x, training=False))  # <- here
        loss = tf.nn.softmax_cross_entropy_with_logits(goal, student(x))
    variables = student.trainable_variables + teacher.trainable_variables
    tape.gradient(loss, variables)
    return loss, variables


def cured(student, teacher, x):
    with tf.GradientTape() as tape:
        goal = tf.stop_gradient(tf.nn.softmax(teacher(x, training=False)))
        loss = tf.nn.softmax_cross_entropy_with_logits(goal, student(x))
    variables = student.trainable_variables + teacher.trainable_variables
    tape.gradient(loss, variables)
    return loss, variables


def example():
    student, teacher = tf.keras.layers.Dense(3, name="student"), tf.keras.layers.Dense(3, name="teacher")
    return student, teacher, tf.ones([4, 2])
