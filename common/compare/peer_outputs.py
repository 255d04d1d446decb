"""What torch's attention computes from given arrays, for check_peers.py: in float64, by plain torch and by each of its backends."""

import warnings

from peer_timing import DTYPES, PEERS, attention, causal_mask, reason

ON_CPU = {"flash": PEERS["flash"], "math": ("torch SDPA, its own plain attention", "MATH"), "plain": PEERS["plain"]}


def peers_on(device):
    return ON_CPU if device == "cpu" else PEERS


def repeated(torch, problem, k):
    """K or V with a copy of each head for every query head that reads it."""
    return k.repeat_interleave(problem["heads"] // problem["kv_heads"], dim=1)


def gradients(torch, problem, arrays, dtype, device, backend):
    """{"o", "dq", "dk", "dv"} as autograd has them, in `dtype` throughout."""
    q, k, v, do = (torch.from_numpy(arrays[name]).to(device, dtype) for name in ("q", "k", "v", "do"))
    mask = causal_mask(torch, problem["seq_q"], device) if problem["causal"] else None
    for tensor in (q, k, v):
        tensor.requires_grad_()
    o = attention(torch, backend, problem["scale"], problem["causal"], mask)(q, repeated(torch, problem, k), repeated(torch, problem, v))
    found = zip(("o", "dq", "dk", "dv"), (o, *torch.autograd.grad(o, (q, k, v), do)))
    return {name: tensor.detach().double().cpu().numpy() for name, tensor in found}


def log_sum_exp(torch, problem, arrays, dtype, device):
    q, k = (torch.from_numpy(arrays[name]).to(device, dtype) for name in ("q", "k"))
    scores = torch.matmul(q, repeated(torch, problem, k).transpose(-2, -1)) * problem["scale"]
    if problem["causal"]:
        scores = scores.masked_fill(causal_mask(torch, problem["seq_q"], device), float("-inf"))
    return torch.logsumexp(scores, dim=-1).double().cpu().numpy()


def lse_of_backend(torch, problem, arrays, dtype, device, backend):
    """L as the backend keeps it for its backward pass, or None where its operator does not say."""
    q, k, v = (torch.from_numpy(arrays[name]).to(device, dtype) for name in ("q", "k", "v"))
    k, v = repeated(torch, problem, k), repeated(torch, problem, v)
    causal, aten = problem["causal"], torch.ops.aten
    if backend == "FLASH_ATTENTION" and device == "cpu":
        lse = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, is_causal=causal)[1]
    elif backend == "FLASH_ATTENTION":
        lse = aten._scaled_dot_product_flash_attention(q, k, v, is_causal=causal)[1]
    elif backend == "EFFICIENT_ATTENTION":
        lse = aten._scaled_dot_product_efficient_attention(q, k, v, None, True, is_causal=causal)[1]
    elif backend == "CUDNN_ATTENTION":
        lse = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, is_causal=causal)[1]
    else:
        return None
    shape = (problem["batch"], problem["heads"], problem["seq_q"])
    lse = lse.reshape(*shape[:2], -1)[:, :, : shape[2]]  # rows may be padded
    return lse.double().cpu().numpy() if tuple(lse.shape) == shape else None


def outputs(torch, problem, arrays, device, only):
    """({name: {tensor: array}}, {name: reason of a refusal}). The names are "float64" and those of the peers. plain's L is in fp32."""
    dtype = getattr(torch, DTYPES[problem["dtype"]])
    exact = gradients(torch, problem, arrays, torch.float64, device, None)
    found, refused = {"float64": {**exact, "lse": log_sum_exp(torch, problem, arrays, torch.float64, device)}}, {}
    for name, (_, backend) in peers_on(device).items():
        if name not in only and name != "plain":
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                found[name] = gradients(torch, problem, arrays, dtype, device, backend)
                lse = log_sum_exp(torch, problem, arrays, torch.float32, device) if backend is None else None
            except RuntimeError as error:
                if name == "plain" or "CUDA error" in str(error):  # no yardstick, or nothing runs on this GPU any more
                    raise
                refused[name] = reason(error, caught)
                continue
            try:
                lse = lse_of_backend(torch, problem, arrays, dtype, device, backend) if backend else lse
            except (RuntimeError, AttributeError, TypeError):
                pass  # these operators are no public interface of torch: another version may lack them
        if lse is not None:
            found[name]["lse"] = lse
    return found, refused
