// Classifies a pixel per thread.
extern "C" __global__ void classify(
    unsigned char* out, const float* scores, long long pixels, int channels, int is_planar, int is_sigmoid
) {
    long long pixel = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= pixels) return;
    const float* first = scores + (is_planar ? pixel : pixel * channels);
    long long step = is_planar ? pixels : 1;
    if (is_sigmoid) {
        out[pixel] = *first >= 0.5f;
        return;
    }
    float best = __int_as_float(0xff800000);  // minus infinity
    int label = 0;
    for (int channel = 0; channel < channels; channel++) {
        float score = first[channel * step];
        if (score > best) {
            best = score;
            label = channel;
        }
    }
    out[pixel] = label;
}
