# optimizers.py - what PyTorch 1.13 lacks, written out from papers and reference implementations
#
# Lion: Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2.  Muon: MuonWithAuxAdam of
# github.com/KellerJordan/Muon, without its bfloat16.
import torch


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (b1, b2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                update = (b1 * m + (1 - b1) * p.grad).sign()
                p.sub_(lr * (update + group["weight_decay"] * p))
                m.mul_(b2).add_((1 - b2) * p.grad)


def orthogonal(x, rounds):
    tall = x.size(-2) > x.size(-1)
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(rounds):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Matrices by Muon, but for those with fewer elements than `least`; the rest by Adam."""

    def __init__(self, params, lr=0.02, momentum=0.95, nesterov=True, rounds=5, weight_decay=0.0, adam_lr=3e-4,
                 least=0):
        super().__init__(params, dict(momentum=momentum, weight_decay=weight_decay))
        self.o = lr, nesterov, rounds, adam_lr, least

    @torch.no_grad()
    def step(self):
        lr, nesterov, rounds, adam_lr, least = self.o
        momentum, decay = (self.param_groups[0][name] for name in ("momentum", "weight_decay"))
        for p in self.param_groups[0]["params"]:
            s = self.state[p]
            s["t"] = s.get("t", 0) + 1
            m = s.setdefault("m", torch.zeros_like(p))
            if p.dim() >= 2 and p.numel() >= least:
                m.lerp_(p.grad, 1 - momentum)
                u = p.grad.lerp(m, momentum) if nesterov else m
                u = orthogonal(u.view(len(u), -1) if u.dim() == 4 else u, rounds).reshape(p.shape)
                p.mul_(1 - lr * decay).sub_(lr * max(1, p.size(-2) / p.size(-1)) ** 0.5 * u)
            else:
                v = s.setdefault("v", torch.zeros_like(p))
                m.lerp_(p.grad, 1 - 0.9)
                v.lerp_(p.grad ** 2, 1 - 0.95)
                u = m / (1 - 0.9 ** s["t"]) / ((v / (1 - 0.95 ** s["t"])).sqrt() + 1e-10)
                p.mul_(1 - adam_lr * decay).sub_(adam_lr * u)
