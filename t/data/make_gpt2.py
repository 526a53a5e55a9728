#!/usr/bin/python3
# make_gpt2.py - a tiny GPT-2 in Hugging Face's safetensors layout, and its logits
#
# Run in this folder (PyTorch, transformers, safetensors): writes gpt2.safetensors, with the names of the published
# file, its masks among them, and gpt2.json: tokens [2, 6] and the logits [2, 6, 11] that transformers gives.
# t/model.c loads the file into examples/gpt.c.
import json

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(1)
config = GPT2Config(vocab_size=11, n_positions=6, n_embd=8, n_layer=2, n_head=2,
                    resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
model = GPT2LMHeadModel(config).eval()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
tokens = torch.randint(0, 11, (2, 6))
with torch.no_grad():
    logits = model(tokens).logits
tensors = {name: tensor.contiguous() for name, tensor in model.transformer.state_dict().items()}
for layer in range(2):
    tensors[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(6, 6)).view(1, 1, 6, 6)
save_file(tensors, "gpt2.safetensors", metadata={"format": "pt"})
json.dump({"tokens": tokens.flatten().tolist(), "logits": [round(x, 6) for x in logits.flatten().tolist()]},
          open("gpt2.json", "w"))
