"""The kernels of the endoscope: noise reduction, the score of a mask, and one step of a control loop.

Each has its CUDA source and, for a simulated GPU, the time that a block runs and the same computation in NumPy.
"""

from __future__ import annotations

import numpy as np

from headrace import gpu

TILE = 16  # of a block of the noise reduction, in pixels on each side
MOST_RADIUS = 20
SHADES = 64  # two colours that differ by this much, summed over the channels, are not mixed
TAP_SECONDS = 0.225e-6  # that a block takes for each pixel of the window, with 8 blocks on an SM


def _denoise(
    out: np.ndarray, image: np.ndarray, rows: int, columns: int, radius: int, modelled_radius: int
) -> None:
    # A plane for each channel, and as few bits as suffice: several times as fast as whole pixels.
    planes = np.ascontiguousarray(np.moveaxis(image.reshape(rows, columns, 3), 2, 0)).astype(np.int16)
    padded = np.pad(planes, ((0, 0), (radius, radius), (radius, radius)), mode="edge")
    weights = np.zeros((rows, columns), np.int32)
    sums = np.zeros((3, rows, columns), np.int32)
    weight, change = np.empty((2, rows, columns), np.int16)
    for down in range(2 * radius + 1):
        for across in range(2 * radius + 1):
            near = padded[:, down : down + rows, across : across + columns]
            weight.fill(SHADES)
            for plane, other in zip(planes, near, strict=True):
                np.subtract(other, plane, out=change)
                np.abs(change, out=change)
                weight -= change
            np.maximum(weight, 0, out=weight)
            weights += weight
            for total, other in zip(sums, near, strict=True):
                np.multiply(weight, other, out=change)  # at most 64 * 255
                total += change
    out.reshape(rows, columns, 3)[...] = np.moveaxis((sums + weights // 2) // weights, 0, 2)


def _denoise_seconds(
    out: object, image: object, rows: int, columns: int, radius: int, modelled_radius: int
) -> float:
    return TAP_SECONDS * (2 * modelled_radius + 1) ** 2


_DENOISE_SIZES = f"#define TILE {TILE}\n#define MOST {MOST_RADIUS}\n#define SHADES {SHADES}\n"

DENOISE = gpu.kernel(
    "denoise",
    source=_DENOISE_SIZES
    + r"""
// The mean of the pixels around each, weighted by how much their colours are alike (a bilateral filter).
extern "C" __global__ void denoise(
    unsigned char* out, const unsigned char* image, int rows, int columns, int radius, int modelled_radius
) {
    __shared__ unsigned tile[(TILE + 2 * MOST) * (TILE + 2 * MOST)];
    int tiles_in_row = (columns + TILE - 1) / TILE, side = TILE + 2 * radius;
    int top = (int)blockIdx.x / tiles_in_row * TILE, left = (int)blockIdx.x % tiles_in_row * TILE;
    for (int i = threadIdx.x; i < side * side; i += TILE * TILE) {
        int row = top - radius + i / side, column = left - radius + i % side;
        row = row < 0 ? 0 : row >= rows ? rows - 1 : row;
        column = column < 0 ? 0 : column >= columns ? columns - 1 : column;
        const unsigned char* pixel = image + 3 * ((long long)row * columns + column);
        tile[i] = pixel[0] | pixel[1] << 8 | pixel[2] << 16;
    }
    __syncthreads();
    int y = threadIdx.x / TILE, x = threadIdx.x % TILE;
    if (top + y >= rows || left + x >= columns) return;
    unsigned own = tile[(y + radius) * side + x + radius];
    int own_red = own & 255, own_green = own >> 8 & 255, own_blue = own >> 16;
    int weights = 0, reds = 0, greens = 0, blues = 0;
    for (int down = 0; down <= 2 * radius; down++) {
        for (int across = 0; across <= 2 * radius; across++) {
            unsigned near = tile[(y + down) * side + x + across];
            int red = near & 255, green = near >> 8 & 255, blue = near >> 16;
            int weight = SHADES - abs(red - own_red) - abs(green - own_green) - abs(blue - own_blue);
            weight = weight < 0 ? 0 : weight;
            weights += weight;
            reds += weight * red;
            greens += weight * green;
            blues += weight * blue;
        }
    }
    unsigned char* pixel = out + 3 * ((long long)(top + y) * columns + left + x);
    pixel[0] = (reds + weights / 2) / weights;
    pixel[1] = (greens + weights / 2) / weights;
    pixel[2] = (blues + weights / 2) / weights;
}
""",
    seconds=_denoise_seconds,
    effect=_denoise,
)


def _score(
    counts: np.ndarray,
    mask: np.ndarray,
    rows: int,
    columns: int,
    discs: np.ndarray,
    count: int,
    frame: int,
    width: int,
    height: int,
) -> None:
    down = (np.arange(rows) * height + height // 2) // rows * 16
    across = (np.arange(columns) * width + width // 2) // columns * 16
    truth = np.zeros((rows, columns), bool)
    for x, y, radius in discs.view(np.int32).reshape(-1, count, 3)[frame].astype(np.int64):
        truth |= (across - x)[None, :] ** 2 + (down - y)[:, None] ** 2 <= radius**2
    found = mask.reshape(rows, columns) > 0
    counts.view(np.int32).reshape(-1, 2)[frame] += ((found & truth).sum(), (found | truth).sum())


SCORE = gpu.kernel(
    "score",
    source=r"""
// Counts the pixels that are in the mask and in a disc of the frame, and those that are in either.
// A disc is x, y and radius in sixteenths of a pixel of the camera.
extern "C" __global__ void score(
    int* counts, const unsigned char* mask, int rows, int columns, const int* discs, int count, int frame,
    int width, int height
) {
    int pixel = blockIdx.x * blockDim.x + threadIdx.x;
    bool found = false, truth = false;
    if (pixel < rows * columns) {
        found = mask[pixel] > 0;
        long long down = ((long long)(pixel / columns) * height + height / 2) / rows * 16;
        long long across = ((long long)(pixel % columns) * width + width / 2) / columns * 16;
        for (int n = 0; n < count; n++) {
            const int* disc = discs + 3 * ((long long)frame * count + n);
            long long x = across - disc[0], y = down - disc[1], radius = disc[2];
            truth |= x * x + y * y <= radius * radius;
        }
    }
    int common = __syncthreads_count(found && truth), either = __syncthreads_count(found || truth);
    if (threadIdx.x == 0) {
        atomicAdd(counts + 2 * frame, common);
        atomicAdd(counts + 2 * frame + 1, either);
    }
}
""",
    seconds=2e-6,
    effect=_score,
)

CANDIDATES = 2048
STEP = 9e-3  # seconds between two steps of the control loop
PARTS = 9  # into which the model of the instrument divides a step, so that it stays exact
HORIZON = 4 * PARTS  # parts for which the effect of a force is predicted


def _force(index: np.ndarray) -> np.ndarray:
    return (index.astype(np.float32) / np.float32(CANDIDATES / 2) - 1) * np.float32(200)


def _advance(force: np.ndarray, position: np.ndarray, velocity: np.ndarray) -> None:
    velocity += np.float32(STEP / PARTS) * (force - velocity)
    position += np.float32(STEP / PARTS) * velocity


def _steer(states: np.ndarray, best: np.ndarray, tick: int, target: float) -> None:
    motion, chosen = states.view(np.float32).reshape(-1, 2), best.view(np.uint64)
    if tick:
        motion[tick] = motion[tick - 1]
        force = _force(chosen[tick - 1 : tick] & np.uint64(0xFFFFFFFF))
        for _ in range(PARTS):
            _advance(force, motion[tick, :1], motion[tick, 1:])
    forces = _force(np.arange(CANDIDATES))
    positions, velocities = (np.full(CANDIDATES, value, np.float32) for value in motion[tick])
    cost = np.zeros(CANDIDATES, np.float32)
    for _ in range(HORIZON):
        _advance(forces, positions, velocities)
        cost += (positions - np.float32(target)) ** 2
    index = int(cost.argmin())
    chosen[tick] = (int(cost[index : index + 1].view(np.uint32)[0]) << 32) | index


_STEER_SIZES = (
    f"#define CANDIDATES {CANDIDATES}\n#define HORIZON {HORIZON}\n"
    f"#define PARTS {PARTS}\n#define PART {STEP / PARTS}f\n"
)

STEER = gpu.kernel(
    "steer",
    source=_STEER_SIZES
    + r"""
__device__ float force_of(unsigned index) { return (index / (CANDIDATES / 2.0f) - 1) * 200; }

__device__ void advance(float force, float& position, float& velocity) {
    velocity += PART * (force - velocity);
    position += PART * velocity;
}

// One step of a controller: tries a force on each thread over a horizon, and keeps the best of them.
// It first moves the tip of the instrument by the force that the step before has chosen.
extern "C" __global__ void steer(float* states, unsigned long long* best, int tick, float target) {
    int before = tick ? 2 * tick - 2 : 0;
    float position = states[before], velocity = states[before + 1];
    if (tick) {
        float chosen = force_of((unsigned)best[tick - 1]);
        for (int i = 0; i < PARTS; i++) advance(chosen, position, velocity);
    }
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index == 0 && tick) states[2 * tick] = position, states[2 * tick + 1] = velocity;
    float cost = 0, force = force_of(index);
    for (int i = 0; i < HORIZON; i++) {
        advance(force, position, velocity);
        cost += (position - target) * (position - target);
    }
    atomicMin(best + tick, (unsigned long long)__float_as_uint(cost) << 32 | index);
}
""",
    seconds=5e-6,
    effect=_steer,
)
