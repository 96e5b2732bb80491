"""Double DQN: Q-learning in which one network chooses the next action and a frozen one says what it is worth.

    loss = (Q(s, a) - sg(y))²,    y = r + γ (1 - done) Q⁻(s', argmaxₐ Q(s', a))

The target y is given. Q⁻ has weights of its own, copied from Q now and then, and they are to change in no
other way: the stop keeps the loss from them. Q itself takes part in the target too, by choosing the action;
there argmax ends the gradient already.

In graph style: the weights are parameters of a session, an update and the copy are assignments.

van Hasselt, Guez & Silver 2016, "Deep reinforcement learning with double Q-learning" (arXiv 1509.06461),
eq. 4.
"""

import numpy as np

import stopgrad as sg

GAMMA, STATES, ACTIONS, BATCH = 0.95, 8, 2, 64


def init(rng, hidden=32):
    sizes = {"W1": (STATES, hidden), "W2": (hidden, ACTIONS)}
    return {k: rng.standard_normal(s, np.float32) / np.sqrt(np.float32(s[0])) for k, s in sizes.items()}


def q_values(params, states):
    return sg.relu(states @ params["W1"]) @ params["W2"]


def loss(online, target, states, actions, rewards, following, done):
    rows = np.arange(len(actions))
    best = q_values(online, following).argmax(axis=-1)
    y = rewards + GAMMA * (1.0 - done) * q_values(target, following)[rows, best]
    error = q_values(online, states)[rows, actions] - sg.stop_gradient(y)
    return (error**2).mean()


def corridor(rng, count):
    """Steps in a corridor: 0 to the left, 1 to the right. Reward 1 and the end are on the right.

    Returns states, actions, rewards, next states, and whether it was the end.
    """
    place, action = rng.integers(STATES, size=count), rng.integers(ACTIONS, size=count, dtype=np.int32)
    slips = rng.random(count) < 0.1
    following = np.clip(place + np.where((action == 1) ^ slips, 1, -1), 0, STATES - 1)
    done = (place == STATES - 1) & (following == STATES - 1)
    one_hot = np.eye(STATES, dtype=np.float32)
    return one_hot[place], action, done.astype(np.float32), one_hot[following], done


def best_values(sweeps=500):
    """The true Q of the corridor, by value iteration."""
    q = np.zeros((STATES, ACTIONS))
    for _ in range(sweeps):
        v = q.max(axis=1)
        left, right = v[np.maximum(np.arange(STATES) - 1, 0)], np.append(v[1:], 0.0)
        ends = (np.arange(STATES) == STATES - 1).astype(float)
        onward = ends + GAMMA * (1.0 - ends) * right
        q = np.stack([0.9 * GAMMA * left + 0.1 * onward, 0.1 * GAMMA * left + 0.9 * onward], axis=1)
    return q


def loss_example():
    rng = np.random.default_rng(0)
    states, actions, rewards, following, done = corridor(rng, 16)
    return init(rng), init(rng), states, actions, rewards, following, done


def train(steps=400, seed=0, engine="auto", copy_every=50):
    """Descent on random steps: the learnt Q of every state, and the losses on the way."""
    rng = np.random.default_rng(seed)
    first = init(rng)
    graph = sg.Graph()
    with graph.as_default():
        online = {k: sg.parameter(v, name=f"online_{k}") for k, v in first.items()}
        target = {k: sg.parameter(v, name=f"target_{k}") for k, v in first.items()}
        states = sg.placeholder(sg.float32, [BATCH, STATES], name="states")
        following = sg.placeholder(sg.float32, [BATCH, STATES], name="following")
        actions = sg.placeholder(sg.int32, [BATCH], name="actions")
        rewards = sg.placeholder(sg.float32, [BATCH], name="rewards")
        done = sg.placeholder(sg.bool, [BATCH], name="done")
        value = loss(online, target, states, actions, rewards, following, done)
        gradient = sg.gradients(value, online)
        update = [sg.assign(p, p - 0.3 * gradient[k]) for k, p in online.items()]
        copy = [sg.assign(target[k], p) for k, p in online.items()]
        table = q_values(online, np.eye(STATES, dtype=np.float32))

    losses = []
    with sg.Session(graph, engine=engine) as session:
        for i in range(steps):
            if i % copy_every == 0:
                session.run(copy)
            batch = dict(zip([states, actions, rewards, following, done], corridor(rng, BATCH), strict=True))
            losses.append(float(session.run([value, update], batch)[0]))
        return session.run(table), losses


if __name__ == "__main__":
    q, losses = train(6000)
    print("state  learnt Q (left, right)  true Q")
    for place, (learnt, true) in enumerate(zip(q, best_values(), strict=True)):
        print(f"{place:5}  {learnt[0]:10.3f} {learnt[1]:10.3f}   {true[0]:.3f} {true[1]:.3f}")
