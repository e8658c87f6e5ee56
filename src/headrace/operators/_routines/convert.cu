// Converts pixels one by one: INPUT and OUTPUT are the types of the elements, CONVERT(value) is the new element.
// In `planes`, 1 says that a channel of the input is a plane, and 2 that one of the output is; otherwise a pixel has
// its channels together.
typedef INPUT input_element;
typedef OUTPUT output_element;

__device__ output_element convert_element(input_element value, float scale, float offset) {
    return (output_element)(CONVERT(value));
}

struct alignas(4 * sizeof(input_element)) input_four { input_element values[4]; };
struct alignas(4 * sizeof(output_element)) output_four { output_element values[4]; };

// Converts four neighbours at a time: one load and one store, where the memory is aligned for that.
__device__ void convert_four(
    output_element* out, const input_element* in, long long first, long long count, float scale, float offset
) {
    bool is_aligned = (unsigned long long)in % sizeof(input_four) == 0
        && (unsigned long long)out % sizeof(output_four) == 0;
    if (is_aligned && first + 4 <= count) {
        input_four given = *(const input_four*)(in + first);
        output_four converted;
        #pragma unroll
        for (int i = 0; i < 4; i++) converted.values[i] = convert_element(given.values[i], scale, offset);
        *(output_four*)(out + first) = converted;
        return;
    }
    for (int i = 0; i < 4 && first + i < count; i++)
        out[first + i] = convert_element(in[first + i], scale, offset);
}

extern "C" __global__ void convert(
    output_element* out, const input_element* in, long long pixels, int in_channels, int out_channels, int order,
    float scale, float offset, int alpha, int planes
) {
    long long pixel = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= pixels) return;
    bool planar_input = planes & 1, planar_output = planes & 2;
    if (planar_input == planar_output && in_channels == out_channels
        && order == (0x03020100 & (int)(0xffffffffu >> 8 * (4 - in_channels)))) {
        convert_four(out, in, 4 * pixel, pixels * in_channels, scale, offset);
        return;
    }
    const input_element* from = in + pixel * (planar_input ? 1 : in_channels);
    output_element* to = out + pixel * (planar_output ? 1 : out_channels);
    long long in_step = planar_input ? pixels : 1, out_step = planar_output ? pixels : 1;
    for (int channel = 0; channel < out_channels; channel++) {
        int taken = order >> 8 * channel & 255;
        to[channel * out_step] = taken < in_channels
            ? convert_element(from[taken * in_step], scale, offset) : (output_element)alpha;
    }
}
