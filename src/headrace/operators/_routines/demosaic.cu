// Demosaics a cell of 2 x 2 pixels per thread: SAMPLE is the type of the elements.
typedef SAMPLE sample;

extern "C" __global__ void demosaic(
    sample* out, const sample* mosaic, int rows, int columns, int channels, int red_row, int red_column, int alpha
) {
    int cell = blockIdx.x * blockDim.x + threadIdx.x;
    int cells_in_row = columns / 2;
    if (cell >= rows / 2 * cells_in_row) return;
    int top = cell / cells_in_row * 2, left = cell % cells_in_row * 2;

    unsigned near[4][4];
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = top + i - 1;
        row = row < 0 ? 1 : row >= rows ? rows - 2 : row;
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            int column = left + j - 1;
            column = column < 0 ? 1 : column >= columns ? columns - 2 : column;
            near[i][j] = mosaic[(long long)row * columns + column];
        }
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
        #pragma unroll
        for (int j = 0; j < 2; j++) {
            unsigned own = near[i + 1][j + 1];
            unsigned beside = near[i + 1][j] + near[i + 1][j + 2];
            unsigned above = near[i][j + 1] + near[i + 2][j + 1];
            unsigned cross = (beside + above + 2) / 4;
            unsigned corners = (near[i][j] + near[i][j + 2] + near[i + 2][j] + near[i + 2][j + 2] + 2) / 4;
            beside = (beside + 1) / 2;
            above = (above + 1) / 2;
            bool in_red_row = i == red_row, in_red_column = j == red_column;
            bool is_green = in_red_row != in_red_column;
            unsigned red = is_green ? (in_red_row ? beside : above) : in_red_row ? own : corners;
            unsigned green = is_green ? own : cross;
            unsigned blue = is_green ? (in_red_row ? above : beside) : in_red_row ? corners : own;
            sample* pixel = out + ((long long)(top + i) * columns + left + j) * channels;
            pixel[0] = red;
            pixel[1] = green;
            pixel[2] = blue;
            if (channels == 4) pixel[3] = alpha;
        }
    }
}
