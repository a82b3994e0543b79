"""AdamW for models kept in bfloat16: the optimizer owns a float32 copy of every trained weight, rounded back after each step.

A bfloat16 weight has 8 significant bits; an update of a ten-thousandth would vanish in it. The copies live in the optimizer's
state, so they travel with its checkpoint and a resumed run goes on from the same numbers.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch

STEP_PARAMS = 32
"""Weights stepped at once: float32 copies of all gradients never exist at the same time."""


class MasterAdamW(torch.optim.Optimizer):
    """AdamW (decoupled weight decay) with float32 masters. The weights themselves may have any dtype."""

    def __init__(
        self,
        params: Iterable[torch.Tensor],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.99),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(list(params), {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update; the fused kernel of torch goes over memory once."""
        assert closure is None
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            for start in range(0, len(params), STEP_PARAMS):
                self._step_some(params[start : start + STEP_PARAMS], group)
        return None

    def _step_some(self, params: list[torch.Tensor], group: dict[str, Any]) -> None:
        states = [self._state_of(param) for param in params]
        masters = [state["master"] for state in states]
        torch._fused_adamw_(
            masters,
            [param.grad.float() for param in params if param.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            _advanced(states),
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )
        for param, master in zip(params, masters):
            if param.dtype != torch.float32:
                param.copy_(master)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the masters and moments in float32: torch would cast them to the dtype of the weights."""
        super().load_state_dict(state_dict)
        for index, saved in state_dict["state"].items():
            param = self._by_index(index)
            state = {name: value.to(param.device, torch.float32) for name, value in saved.items()}
            if param.dtype == torch.float32:
                param.data.copy_(state["master"])
                state["master"] = param
            self.state[param] = state

    def _state_of(self, param: torch.Tensor) -> dict[str, torch.Tensor]:
        state = self.state[param]
        if not state:
            state["master"] = param if param.dtype == torch.float32 else param.detach().float().clone()
            state["exp_avg"] = torch.zeros_like(param, dtype=torch.float32)
            state["exp_avg_sq"] = torch.zeros_like(param, dtype=torch.float32)
            state["step"] = torch.zeros((), dtype=torch.float32, device=param.device)
        return state

    def _by_index(self, index: int) -> torch.Tensor:
        return [param for group in self.param_groups for param in group["params"]][index]


def _advanced(states: list[dict[str, torch.Tensor]]) -> list[torch.Tensor]:
    for state in states:
        state["step"] += 1
    return [state["step"] for state in states]
