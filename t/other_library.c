/* other_library.c - oneDNN says that it is another version, to programs that preload this
 * (LD_PRELOAD)
 *
 * The start of oneDNN's dnnl_version_t, without its header: preloaded where there is no
 * oneDNN, too. */
struct version {
    int major, minor, patch;
    const char *hash;
    unsigned cpu, gpu;
};

const struct version *dnnl_version(void);

const struct version *dnnl_version(void)
{
    static const struct version other = {9, 8, 7, "", 0, 0};
    return &other;
}
