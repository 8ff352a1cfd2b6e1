"""One update of a discrete soft actor-critic with quantile critics, and its inference, by PyTorch on the processor.

    learner.py '{"State":128,...}' THREADS

reads commands from standard input, one a line, and answers each with a line of JSON:
    check          the losses of one update from the weights and the batch that fill() makes
    run N          seconds of wall and of processor time of N updates
    infer N what   seconds of each of N choices for one state by the clock, then of as many in processor time; what is actor or critics
"""
import json
import math
import sys
import time

import torch
import torch.nn.functional as F

shape = json.loads(sys.argv[1])
torch.set_num_threads(int(sys.argv[2]))
S, A, H, B, N, NT, K, C = (shape[k] for k in ("State", "Actions", "Hidden", "Batch", "Taus", "TargetTaus", "ActTaus", "Cosines"))
GAMMA, ALPHA, POLYAK, SUBSET = .99, .1, .005, 2


def fill(seed, n):
    i = torch.arange(1, n + 1, dtype=torch.float64)
    x = torch.sin(i * 12.9898 + seed * 78.233) * 43758.5453
    return x - torch.floor(x)


class Dense(torch.nn.Module):
    def __init__(self, i, o, norm):
        super().__init__()
        self.linear = torch.nn.Linear(i, o)
        self.norm = torch.nn.LayerNorm(o) if norm else None

    def forward(self, x):
        x = self.linear(x)
        return torch.relu(x if self.norm is None else self.norm(x))


def layers(net):
    return [m for m in net.modules() if isinstance(m, (torch.nn.Linear, torch.nn.LayerNorm))]


def init(net, seed):
    """Fills a network's weights in the order of the layers, rows of the input first."""
    at, total = 0, sum(p.numel() for p in net.parameters())
    u = fill(seed, total)
    with torch.no_grad():
        for m in layers(net):
            if isinstance(m, torch.nn.Linear):
                i, o = m.in_features, m.out_features
                m.weight.copy_(((2 * u[at:at + i * o] - 1) * math.sqrt(1 / i)).reshape(i, o).t())
                m.bias.zero_()
                at += i * o + o
            else:
                m.weight.fill_(1)
                m.bias.zero_()
                at += 2 * m.weight.numel()
    return net


class Actor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.out = Dense(S, H, False), Dense(H, H, False), torch.nn.Linear(H, A)

    def forward(self, s):
        return self.out(self.b(self.a(s)))


class Critic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        norm = shape["LayerNorm"]
        self.trunk, self.tau, self.head, self.out = Dense(S, H, norm), Dense(C, H, False), Dense(H, H, norm), torch.nn.Linear(H, A)

    def forward(self, s, cos):
        return self.out(self.head(self.trunk(s)[:, None, :] * self.tau(cos)))


actor = init(Actor(), 1)
critics = [init(Critic(), 10 + i) for i in range(shape["Critics"])]
targets = [init(Critic(), 10 + i) for i in range(shape["Critics"])]
optimisers = [torch.optim.Adam(n.parameters(), lr=3e-4, eps=1e-4) for n in [actor] + critics]
s, s2 = ((2 * fill(k, B * S) - 1).float().reshape(B, S) for k in (100, 101))
action = (fill(102, B) * A).long().clamp(max=A - 1)
reward = fill(103, B).float()
index = torch.arange(C)


def cosines(tau):
    return torch.cos(math.pi * tau[:, :, None] * index)


def update(draw):
    with torch.no_grad():
        p = torch.softmax(actor(s2), 1)
        cos = cosines(draw(NT, 201))
        z = targets[0](s2, cos)
        for t in targets[1:SUBSET]:
            z = torch.minimum(z, t(s2, cos))
        y = reward[:, None] + GAMMA * (z * p[:, None, :]).sum(2)
    tau = draw(N, 202)
    cos, losses = cosines(tau), []
    for c, t, o in zip(critics, targets, optimisers[1:]):
        z = c(s, cos).gather(2, action[:, None, None].expand(B, N, 1)).squeeze(2)
        u = y[:, None, :] - z[:, :, None]
        huber = F.huber_loss(z[:, :, None].expand_as(u), y[:, None, :].expand_as(u), reduction="none")
        loss = ((tau[:, :, None] - (u.detach() < 0).float()).abs() * huber).mean(2).sum(1).mean()
        o.zero_grad(set_to_none=True)
        loss.backward()
        o.step()
        losses.append(loss.item())
        with torch.no_grad():
            a, b = list(t.parameters()), list(c.parameters())
            torch._foreach_mul_(a, 1 - POLYAK)
            torch._foreach_add_(a, b, alpha=POLYAK)
    with torch.no_grad():
        cos = cosines(draw(K, 203))
        q = critics[0](s, cos).mean(1)
        for c in critics[1:]:
            q = q + c(s, cos).mean(1)
        q = q / len(critics)
    lp = torch.log_softmax(actor(s), 1)
    loss = (lp.exp() * (ALPHA * lp - q)).sum(1).mean()
    optimisers[0].zero_grad(set_to_none=True)
    loss.backward()
    optimisers[0].step()
    return losses + [loss.item()]


def drawn(n, _):
    return torch.rand(B, n)


one = s[:1]
fixed = cosines(.25 * fill(204, K).float().reshape(1, K))


def choose(what):
    logits = actor(one)
    if what == "critics":
        logits = sum(c(one, fixed).mean(1) for c in critics[:2])
    return logits.argmax(1)


for line in sys.stdin:
    word, *rest = line.split()
    if word == "check":
        answer = update(lambda n, seed: fill(seed, B * n).float().reshape(B, n))
    elif word == "run":
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(int(rest[0])):
            update(drawn)
        answer = [time.perf_counter() - wall, time.process_time() - cpu]
    else:
        with torch.inference_mode():
            answer = []
            for clock in time.perf_counter, time.thread_time:
                for _ in range(int(rest[0])):
                    begin = clock()
                    choose(rest[1])
                    answer.append(clock() - begin)
    print(json.dumps(answer), flush=True)
