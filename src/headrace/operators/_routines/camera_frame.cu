// The arithmetic of BayerSensor.bayer, pixel by pixel.
extern "C" __global__ void camera_frame(
    void* frame, const void* background, const int* sigma, const short* gauss, const int* objects, int count,
    int colors, int width, int height, int down, int across, int margin, int full_scale
) {
    long long pixel = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= (long long)width * height) return;
    int row = pixel / width, column = pixel % width;
    int color = colors >> (4 * (2 * (row & 1) + (column & 1))) & 15;
    bool wide = full_scale > 255;
    int level = wide ? ((const unsigned short*)background)[pixel] : ((const unsigned char*)background)[pixel];
    for (int n = 0; n < count; n++) {
        const int* one = objects + 6 * n;  // x, y and radius in sixteenths of a pixel; three levels
        long long x = 16 * column - one[0], y = 16 * row - one[1], radius = one[2];
        if (x * x + y * y <= radius * radius) level = one[3 + color];
    }
    if (margin) {
        int g = gauss[(long long)(row + down) * (width + margin) + column + across];
        level += (sigma[level] * g + 128) >> 8;
        level = min(max(level, 0), full_scale);
    }
    if (wide) ((unsigned short*)frame)[pixel] = level;
    else ((unsigned char*)frame)[pixel] = level;
}
