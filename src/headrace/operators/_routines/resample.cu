// Resamples an image of bytes and converts the result: OUTPUT is its type, CONVERT(value) the element for a byte.
// In `planes`, 2 says that a channel of the result is a plane; otherwise a pixel has its channels together.
typedef OUTPUT output_element;

__device__ output_element convert_byte(unsigned value, float scale, float offset) {
    return (output_element)(CONVERT(value));
}

// A byte as a float, by the bits of 2^23 + value: the instruction that converts has a quarter of the throughput.
__device__ float float_of(unsigned char value) {
    return __fsub_rn(__int_as_float(0x4b000000u | value), 8388608.0f);
}

__device__ unsigned byte_of(float sum) {
    return (unsigned)floorf(fminf(fmaxf(__fadd_rn(sum, 0.5f), 0.0f), 255.0f));
}

// Returns the channels of a pixel, a byte each. With few taps, known when this is compiled, all pixels are loaded
// at once; otherwise each load waits for the one that tells its position.
template <int CHANNELS, int TAPS>
__device__ unsigned weigh_few(
    const unsigned char* in, int in_columns, int row, int column,
    const int* row_positions, const float* row_weights, const int* column_positions, const float* column_weights
) {
    float shares[TAPS];
    const unsigned char* lines[TAPS];
    #pragma unroll
    for (int j = 0; j < TAPS; j++) {
        shares[j] = row_weights[row * TAPS + j];
        lines[j] = in + (long long)row_positions[row * TAPS + j] * in_columns * CHANNELS;
    }
    float sums[CHANNELS] = {};
    #pragma unroll
    for (int i = 0; i < TAPS; i++) {
        float weight = column_weights[column * TAPS + i];
        int left = column_positions[column * TAPS + i] * CHANNELS;
        #pragma unroll
        for (int channel = 0; channel < CHANNELS; channel++) {
            float part = 0;
            #pragma unroll
            for (int j = 0; j < TAPS; j++)
                part = __fadd_rn(part, __fmul_rn(float_of(lines[j][left + channel]), shares[j]));
            sums[channel] = __fadd_rn(sums[channel], __fmul_rn(part, weight));
        }
    }
    unsigned pixel = 0;
    #pragma unroll
    for (int channel = 0; channel < CHANNELS; channel++) pixel |= byte_of(sums[channel]) << 8 * channel;
    return pixel;
}

__device__ unsigned weigh_many(
    const unsigned char* in, int in_columns, int row, int column, int channels,
    const int* row_positions, const float* row_weights, int row_taps,
    const int* column_positions, const float* column_weights, int column_taps
) {
    float sums[4] = {0, 0, 0, 0};
    for (int i = 0; i < column_taps; i++) {
        float weight = column_weights[column * column_taps + i];
        if (weight == 0) continue;
        const unsigned char* top = in + (long long)column_positions[column * column_taps + i] * channels;
        float parts[4] = {0, 0, 0, 0};
        for (int j = 0; j < row_taps; j++) {
            float share = row_weights[row * row_taps + j];
            const unsigned char* from =
                top + (long long)row_positions[row * row_taps + j] * in_columns * channels;
            #pragma unroll
            for (int channel = 0; channel < 4; channel++)
                if (channel < channels)
                    parts[channel] = __fadd_rn(parts[channel], __fmul_rn(float_of(from[channel]), share));
        }
        #pragma unroll
        for (int channel = 0; channel < 4; channel++)
            sums[channel] = __fadd_rn(sums[channel], __fmul_rn(parts[channel], weight));
    }
    unsigned pixel = 0;
    #pragma unroll
    for (int channel = 0; channel < 4; channel++)
        if (channel < channels) pixel |= byte_of(sums[channel]) << 8 * channel;
    return pixel;
}

#define FEW(CHANNELS, TAPS) \
    if (channels == CHANNELS && row_taps == TAPS && column_taps == TAPS) \
        pixel = weigh_few<CHANNELS, TAPS>( \
            in, in_columns, row, column, row_positions, row_weights, column_positions, column_weights \
        ); \
    else

extern "C" __global__ void resample(
    output_element* __restrict__ out, const unsigned char* __restrict__ in,
    const int* __restrict__ row_positions, const float* __restrict__ row_weights,
    const int* __restrict__ column_positions, const float* __restrict__ column_weights,
    int row_taps, int column_taps, int in_columns, int rows, int columns,
    int channels, int out_channels, int order, float scale, float offset, int alpha, int planes
) {
    unsigned number = blockIdx.x * blockDim.x + threadIdx.x;  // dividing 64 bits would take most of the time
    if (number >= (unsigned)rows * columns) return;
    int row = number / columns, column = number % columns;
    unsigned pixel;
    FEW(3, 2) FEW(4, 2) FEW(1, 2) FEW(3, 4) FEW(4, 4) FEW(1, 4)
    pixel = weigh_many(
        in, in_columns, row, column, channels, row_positions, row_weights, row_taps, column_positions,
        column_weights, column_taps
    );
    output_element* to = out + (long long)number * (planes & 2 ? 1 : out_channels);
    long long step = planes & 2 ? (long long)rows * columns : 1;
    #pragma unroll
    for (int channel = 0; channel < 4; channel++) {
        if (channel >= out_channels) break;
        int taken = order >> 8 * channel & 255;
        to[channel * step] = taken < channels
            ? convert_byte(pixel >> 8 * taken & 255, scale, offset) : (output_element)alpha;
    }
}
