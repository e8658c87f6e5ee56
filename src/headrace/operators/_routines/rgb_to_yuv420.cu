// Converts a cell of 2 x 2 pixels per thread, by BT.601 in full range.
__device__ unsigned char saturated(int value) { return value < 0 ? 0 : value > 255 ? 255 : value; }

extern "C" __global__ void rgb_to_yuv420(unsigned char* out, const unsigned char* in, int rows, int columns) {
    int cell = blockIdx.x * blockDim.x + threadIdx.x;
    int cells_in_row = columns / 2;
    if (cell >= rows / 2 * cells_in_row) return;
    int top = cell / cells_in_row * 2, left = cell % cells_in_row * 2;
    int reds = 0, greens = 0, blues = 0;
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            long long pixel = (long long)(top + i) * columns + left + j;
            int red = in[3 * pixel], green = in[3 * pixel + 1], blue = in[3 * pixel + 2];
            out[pixel] = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16;
            reds += red;
            greens += green;
            blues += blue;
        }
    }
    long long u_at = (long long)rows * columns + cell, v_at = u_at + (long long)(rows / 2) * cells_in_row;
    int middle = (128 << 18) + (1 << 17);
    out[u_at] = saturated((-11058 * reds - 21710 * greens + 32768 * blues + middle) >> 18);
    out[v_at] = saturated((32768 * reds - 27439 * greens - 5329 * blues + middle) >> 18);
}
