/* counting.c - a user-defined accelerator: the CPU, with a count of compiled products
 *
 *   "trainer": {"accelerator": {"name": "counting", "file": "products.txt"}}
 *
 * An accelerator is a table of functions for one device: memory in regions, plans that
 * are compiled from graphs, and replays of them.  accelerators/accelerator.h says on
 * which thread each function is called.  This accelerator forwards all calls to another
 * one, which it finds by name, and counts the products of each graph. */
#include <accelerators/accelerator.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct counting {
    const char *file;                          /* option: receives the count at the end */
    void *cpu;
    long products;
} counting_t;

static const pl_option_t counting_options[] = {
    PL_TEXT(counting_t, file, "\"\"", NULL, "file for the number of compiled products"),
    PL_OPTIONS_END,
};

/* Set before any device is opened. */
static const pl_accelerator_ops_t *cpu;

static int counting_open(void *self, pl_device_info_t *info, pl_error_t *err)
{
    counting_t *counting = self;
    cpu = pl_component_find("accelerator", "cpu", err);
    if (!cpu)
        return PL_ENOTFOUND;
    counting->cpu = calloc(1, cpu->size);
    if (!counting->cpu)
        return pl_fail(err, PL_ENOMEM, "out of memory");
    /* The CPU's options: threads and instruction set. */
    for (const pl_option_t *option = cpu->options; option->name; option++)
        if (option->type == PL_OPTION_TEXT)
            *(const char **)((char *)counting->cpu + option->offset) = "auto";
    return cpu->open(counting->cpu, info, err);
}

static void counting_close(void *self)
{
    counting_t *counting = self;
    FILE *file = *counting->file ? fopen(counting->file, "w") : NULL;
    if (file) {
        fprintf(file, "%ld products\n", counting->products);
        fclose(file);
    }
    if (counting->cpu)
        cpu->close(counting->cpu);
    free(counting->cpu);
}

static int counting_region(void *self, pl_region_t region, pl_dtype_t dtype, size_t n,
                           pl_error_t *err)
{
    return cpu->region(((counting_t *)self)->cpu, region, dtype, n, err);
}

static int counting_write(void *self, pl_region_t region, size_t offset, const void *host,
                          size_t n, pl_error_t *err)
{
    return cpu->write(((counting_t *)self)->cpu, region, offset, host, n, err);
}

static int counting_read(void *self, pl_region_t region, size_t offset, void *host,
                         size_t n, pl_error_t *err)
{
    return cpu->read(((counting_t *)self)->cpu, region, offset, host, n, err);
}

static int counting_compile(void *self, const pl_graph_t *g, pl_plan_t **plan,
                            pl_error_t *err)
{
    counting_t *counting = self;
    for (int i = 0; i < g->op_count; i++)
        counting->products += pl_operators[g->op[i].code].kind == PL_KIND_product
                              && *pl_op_name(&g->op[i]);
    return cpu->compile(counting->cpu, g, plan, err);
}

static void counting_discard(void *self, pl_plan_t *plan)
{
    cpu->discard(((counting_t *)self)->cpu, plan);
}

static int counting_replay(void *self, pl_plan_t *plan, pl_replay_t *replay,
                           pl_error_t *err)
{
    return cpu->replay(((counting_t *)self)->cpu, plan, replay, err);
}

static const pl_accelerator_ops_t counting = {
    .name = "counting",
    .help = "the CPU, counting products",
    .size = sizeof(counting_t),
    .options = counting_options,
    .open = counting_open,
    .close = counting_close,
    .region = counting_region,
    .write = counting_write,
    .read = counting_read,
    .compile = counting_compile,
    .discard = counting_discard,
    .replay = counting_replay,
};

PL_PLUGIN({"accelerator", &counting})
