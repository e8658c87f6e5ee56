// Finds the maximum of a channel per block of 256 threads; NaN is never the largest.
extern "C" __global__ void find_maxima(float* out, const float* maps, int rows, int columns, int channels) {
    __shared__ float values[256];
    __shared__ long long places[256];
    int channel = blockIdx.x, own = threadIdx.x;
    long long pixels = (long long)rows * columns;
    float best = __int_as_float(0xff800000);  // minus infinity
    long long place = 0;
    for (long long pixel = own; pixel < pixels; pixel += 256) {
        float value = maps[pixel * channels + channel];
        if (value > best) {
            best = value;
            place = pixel;
        }
    }
    values[own] = best;
    places[own] = place;
    for (int half = 128; half; half /= 2) {
        __syncthreads();
        if (own < half) {
            float other = values[own + half];
            long long there = places[own + half];
            if (other > values[own] || (other == values[own] && there < places[own])) {
                values[own] = other;
                places[own] = there;
            }
        }
    }
    if (own == 0) {
        out[2 * channel] = __fdiv_rn((float)(places[0] / columns), (float)rows);
        out[2 * channel + 1] = __fdiv_rn((float)(places[0] % columns), (float)columns);
    }
}
