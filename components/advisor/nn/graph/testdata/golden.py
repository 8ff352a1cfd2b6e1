"""Writes golden.json: losses and gradients of the learner's networks, by PyTorch in float64.

    python3 golden.py > golden.json
"""
import json
import math

import torch

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)


def layout(s):
    out, width = [], s["in"]

    def dense(i, o, norm):
        out.extend([(i, o), (o,)] + ([(o,), (o,)] if norm else []))

    norm = s.get("layerNorm", False)
    for w in s["trunk"]:
        dense(width, w, norm)
        width = w
    if s["kind"] == "iqn":
        dense(s["cosines"], width, False)
        for w in s["head"]:
            dense(width, w, norm)
            width = w
    dense(width, s["out"], False)
    return out


def dense(x, p, relu, norm):
    y = x @ p.pop(0) + p.pop(0)
    if norm:
        y = torch.nn.functional.layer_norm(y, y.shape[-1:], p.pop(0), p.pop(0), 1e-5)
    return torch.relu(y) if relu else y


def finish(case, loss, params):
    loss.backward()
    case.update(loss=loss.item(), params=[v for p in params for v in p.detach().flatten().tolist()],
                grad=[v for p in params for v in p.grad.flatten().tolist()])
    return case


def critic(name, s, rows=3, taus=4, targets=5):
    params = [torch.randn(*d).mul_(.6).requires_grad_() for d in layout(s)]
    p, norm = list(params), s.get("layerNorm", False)
    x, tau, y = torch.randn(rows, s["in"]), torch.rand(rows, taus), torch.randn(rows, targets) * 2
    take = torch.randint(s["out"], (rows,))
    psi = x
    for _ in s["trunk"]:
        psi = dense(psi, p, True, norm)
    cos = torch.cos(math.pi * tau[:, :, None] * torch.arange(s["cosines"]))
    h = psi[:, None, :] * dense(cos, p, True, False)
    for _ in s["head"]:
        h = dense(h, p, True, norm)
    z = dense(h, p, False, False)
    z = z.gather(2, take[:, None, None].expand(rows, taus, 1)).squeeze(2)
    u = y[:, None, :] - z[:, :, None]
    huber = torch.nn.functional.huber_loss(z[:, :, None].expand_as(u), y[:, None, :].expand_as(u), reduction="none", delta=1.0)
    loss = ((tau[:, :, None] - (u.detach() < 0).double()).abs() * huber).mean(2).sum(1).mean()
    case = dict(name=name, spec=s, rows=rows, taus=taus, x=x.flatten().tolist(), tau=tau.flatten().tolist(),
                targets=y.flatten().tolist(), take=take.tolist(), weight=1 / rows)
    return finish(case, loss, params)


def actor(name, s, valid=(5, 1, 3), width=5, alpha=.17):
    params = [torch.randn(*d).mul_(.6).requires_grad_() for d in layout(s)]
    p, norm = list(params), s.get("layerNorm", False)
    b = len(valid)
    x, q = torch.randn(b, width, s["in"]), torch.randn(b, width)
    h = x
    for _ in s["trunk"]:
        h = dense(h, p, True, norm)
    logits = dense(h, p, False, False).squeeze(2)
    loss = 0
    for i, n in enumerate(valid):
        d = torch.distributions.Categorical(logits=logits[i, :n])
        loss = loss - alpha * d.entropy() - (d.probs * q[i, :n]).sum()
    case = dict(name=name, spec=s, valid=valid, width=width, alpha=alpha, weight=1 / b, x=x.flatten().tolist(), q=q.flatten().tolist())
    return finish(case, loss / b, params)


print(json.dumps([
    critic("quantile critic", dict(kind="iqn", out=3, trunk=[8], head=[7], cosines=8, **{"in": 5})),
    critic("quantile critic with LayerNorm", dict(kind="iqn", out=1, trunk=[6, 8], head=[7, 5], cosines=8, layerNorm=True, **{"in": 5})),
    actor("actor", dict(kind="mlp", out=1, trunk=[8, 6], **{"in": 5})),
    actor("actor with LayerNorm", dict(kind="mlp", out=1, trunk=[8, 6], layerNorm=True, **{"in": 5})),
]))
