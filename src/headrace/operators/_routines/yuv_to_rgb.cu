// Converts a pixel per thread; NV12, YUV420, YUYV or UYVY is defined, and says where its samples are.
__device__ unsigned char saturated(int value) {
    value = (value + 32768) >> 16;
    return value < 0 ? 0 : value > 255 ? 255 : value;
}

extern "C" __global__ void yuv_to_rgb(
    unsigned char* out, const unsigned char* in, int rows, int columns, int channels, int order, int alpha,
    int black, int luma, int v_in_red, int u_in_green, int v_in_green, int u_in_blue
) {
    unsigned number = blockIdx.x * blockDim.x + threadIdx.x;  // dividing 64 bits would take most of the time
    if (number >= (unsigned)rows * columns) return;
    int row = number / columns, column = number % columns;
    long long pixel = number, luma_at, u_at, v_at;
#if defined(NV12)
    luma_at = pixel;
    u_at = (long long)(rows + row / 2) * columns + column / 2 * 2;
    v_at = u_at + 1;
#elif defined(YUV420)
    luma_at = pixel;
    u_at = (long long)rows * columns + (long long)(row / 2) * (columns / 2) + column / 2;
    v_at = u_at + (long long)(rows / 2) * (columns / 2);
#elif defined(YUYV)
    luma_at = 2 * pixel;
    u_at = 2 * (pixel - column % 2) + 1;
    v_at = u_at + 2;
#elif defined(UYVY)
    luma_at = 2 * pixel + 1;
    u_at = 2 * (pixel - column % 2);
    v_at = u_at + 2;
#endif
    int light = in[luma_at] - black;
    int y = luma * (light < 0 ? 0 : light), u = in[u_at] - 128, v = in[v_at] - 128;
    unsigned char colours[4] = {
        saturated(y + v_in_red * v),
        saturated(y + u_in_green * u + v_in_green * v),
        saturated(y + u_in_blue * u),
        (unsigned char)alpha,
    };
    for (int channel = 0; channel < channels; channel++) {
        int taken = order >> 8 * channel & 255;
        out[pixel * channels + channel] = taken == 0 ? colours[0] : taken == 1 ? colours[1]
                                        : taken == 2 ? colours[2] : colours[3];
    }
}
