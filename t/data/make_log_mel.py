#!/usr/bin/env python3
# make_log_mel.py - what PyTorch computes for t/sounds.c: log-mel features by torch.stft and the triangles of
# torchaudio.functional.melscale_fbanks (mel_scale="htk", norm=None), printed as lines of "column mel value"
import math

import torch

RATE, N_FFT, HOP, MELS, COUNT = 16000, 512, 160, 40, 3200
n = torch.arange(COUNT, dtype=torch.float64)
wave = (0.5 * torch.sin(2 * math.pi * 440 * n / RATE) + 0.25 * ((n * 7919) % 1000 / 1000 - 0.5)).float().double()
spectrum = torch.stft(wave, N_FFT, HOP, window=torch.hann_window(N_FFT, dtype=torch.float64), center=True,
                      pad_mode="reflect", return_complex=True).abs() ** 2
hertz = torch.linspace(0, RATE / 2, N_FFT // 2 + 1, dtype=torch.float64)
mel_max = 2595 * math.log10(1 + RATE / 2 / 700)
edges = 700 * (10 ** (torch.linspace(0, mel_max, MELS + 2, dtype=torch.float64) / 2595) - 1)
slopes = edges.unsqueeze(0) - hertz.unsqueeze(1)
width = edges[1:] - edges[:-1]
bank = torch.clamp(torch.minimum(-slopes[:, :-2] / width[:-1], slopes[:, 2:] / width[1:]), min=0)
log_mel = (bank.T @ spectrum).clamp(min=1e-10).log()
for column in (0, 1, 10, 19, 20):
    for mel in (0, 5, 8, 20, 39):
        print(f"    {{{column}, {mel}, {log_mel[mel, column]:.6f}}},")
