extern "C" __global__ void headrace_differs(
    unsigned int *found, unsigned long long one, unsigned long long two, unsigned long long size)
{
    const unsigned char *a = reinterpret_cast<const unsigned char *>(one);
    const unsigned char *b = reinterpret_cast<const unsigned char *>(two);
    const unsigned long long step = (unsigned long long) gridDim.x * blockDim.x;
    bool differs = false;
    for (unsigned long long i = blockIdx.x * (unsigned long long) blockDim.x + threadIdx.x; i < size; i += step)
        differs = differs || a[i] != b[i];
    if (differs)
        *found = 1;
}
