"""Pictures a second for training, beside torchvision's loader; see t/bench/pictures."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import torch
from PIL import Image
from torchvision import datasets, transforms

FILES, EPOCHS, BATCH, BAR = 600, 3, 50, 1.5


def write_pictures(folder):
    """Soft shapes with some noise: their files have the size of photographs' (50 kB)."""
    random = numpy.random.default_rng(1)
    for k in range(FILES):
        small = Image.fromarray(random.integers(0, 256, (24, 32, 3), dtype=numpy.uint8))
        pixels = numpy.asarray(small.resize((500, 375), Image.BICUBIC), dtype=numpy.int16)
        pixels = pixels + random.integers(-12, 13, pixels.shape, dtype=numpy.int16)
        os.makedirs(f"{folder}/class{k % 4}", exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8)).save(f"{folder}/class{k % 4}/{k}.jpg", quality=85)


def seconds_of_run(folder, epochs):
    run = {
        "module": {"name": "layers", "layers": ["global_pool", "linear auto"]},
        "data": {"name": "pictures", "path": "pictures", "batch_size": BATCH, "workers": 2,
                 "stages": ["random_resized_crop 224", "flip", "normalize imagenet"]},
        "optimizer": {"name": "sgd", "lr": 0.01},
        "trainer": {"accelerator": {"name": "cpu", "threads": 1}, "max_epochs": epochs},
    }
    with open(folder + "/run.json", "w") as file:
        json.dump(run, file)
    began = time.monotonic()
    made = subprocess.run([os.environ["PACELINE"], "fit", "run.json"], cwd=folder, text=True, capture_output=True)
    if made.returncode:
        sys.exit(made.stderr)
    return time.monotonic() - began


def ours(folder):
    first = seconds_of_run(folder, 1)
    return FILES * EPOCHS / (seconds_of_run(folder, 1 + EPOCHS) - first)


def theirs(folder):
    stages = transforms.Compose([
        transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    loader = torch.utils.data.DataLoader(datasets.ImageFolder(folder + "/pictures", stages), batch_size=BATCH,
                                         shuffle=True, num_workers=2, persistent_workers=True)
    for epoch in range(1 + EPOCHS):
        if epoch == 1:
            began = time.monotonic()
        for _ in loader:
            pass
    return FILES * EPOCHS / (time.monotonic() - began)


torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as folder:
    write_pictures(folder + "/pictures")
    pairs = [(ours(folder), theirs(folder)) for _ in range(int(sys.argv[1]))]
ratio = statistics.median(a / b for a, b in pairs)
print(json.dumps({
    "name": "pictures, 224 of 500 x 375", "unit": "1/s", "ours": round(statistics.median(a for a, _ in pairs)),
    "against": "torchvision", "theirs": round(statistics.median(b for _, b in pairs)),
    "ratio": round(ratio, 2), "pairs": len(pairs), "bar": BAR, "holds": ratio >= BAR}))
