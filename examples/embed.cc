// embed.cc - embed.c in C++17: handles that free themselves, a module with options, a lambda
//
// It has no event loop of its own: pl_engine_run_until() delivers the notifications.
#include <paceline.h>

#include <cstdio>
#include <memory>
#include <vector>

namespace {

constexpr int samples = 2000;

struct circle {
    int64_t hidden;
};

const pl_option_t circle_options[] = {
    PL_INT(circle, hidden, "32", "1..", "units of the hidden layer"), PL_OPTIONS_END};

// Two numbers in, logits of two classes out.
void circle_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    const auto *options = static_cast<const circle *>(self);
    pl_node_t x = pl_reshape(g, pl_input(g, "x"), PL_SHAPE(-1, 2));
    pl_node_t hidden = pl_relu(g, pl_linear(g, "hidden", x, options->hidden));
    pl_node_t logits = pl_linear(g, "out", hidden, 2);  // [B, 2]
    pl_output(g, "logits", logits);
    if (stage == PL_PREDICT)
        return;
    pl_loss(g, pl_cross_entropy(g, logits, pl_input(g, "y"), nullptr));
    pl_log(g, "acc", pl_accuracy(g, logits, pl_input(g, "y"), nullptr), PL_ON_EPOCH);
}

const pl_module_ops_t module = [] {
    pl_module_ops_t ops{};
    ops.name = "circle";
    ops.help = "points inside and outside a circle";
    ops.size = sizeof(circle);
    ops.options = circle_options;
    ops.step = circle_step;
    return ops;
}();

const pl_registration_t components[] = {{"module", &module}, PL_REGISTRATIONS_END};

const char run[] = R"({
    "module": {"name": "circle", "hidden": 48},
    "data": {"name": "memory", "source": "points", "val_split": 0.1},
    "optimizer": {"name": "adamw", "lr": 1e-2},
    "trainer": {"max_epochs": 60, "accelerator": {"name": "cpu", "threads": 1}}
})";

using engine_p = std::unique_ptr<pl_engine_t, decltype(&pl_engine_free)>;
using options_p = std::unique_ptr<pl_options_t, decltype(&pl_options_free)>;

// The arrays must stay while they are trained on.
struct points {
    std::vector<float> x = std::vector<float>(2 * samples);
    std::vector<int64_t> y = std::vector<int64_t>(samples);

    points()
    {
        for (int k = 0; k < samples; k++) {
            float a = float(k * 37 % samples) / (samples / 2) - 1;
            float b = float(k * 997 % samples) / (samples / 2) - 1;
            x[2 * k] = a, x[2 * k + 1] = b;
            y[k] = a * a + b * b < 0.5f;
        }
    }

    int offer(pl_error_t *err) const
    {
        pl_arrays_t arrays{};
        arrays.samples = samples;
        arrays.field_count = 2;
        arrays.field[0] = {"x", PL_F32, PL_SHAPE(2)};
        arrays.field[1] = {"y", PL_I64, {}};
        arrays.data[0] = x.data();
        arrays.data[1] = y.data();
        return pl_memory_arrays("points", &arrays, err);
    }
};

int train(const points &data, pl_error_t *err)
{
    engine_p engine(pl_engine_new(nullptr, err), pl_engine_free);
    options_p options(pl_options_parse(run, "run", err), pl_options_free);
    if (!engine || !options || data.offer(err) != PL_OK)
        return err->code;
    pl_trainer_t *trainer = pl_trainer_new(engine.get(), options.get(), err);
    if (!trainer)
        return err->code;
    auto on_done = [](pl_trainer_t *, const pl_result_t *result, void *) {
        double accuracy = 0;
        pl_result_metric(result, "val_acc", &accuracy);
        std::printf("%s%s%s\nval_acc %.3f\n", result->status, result->error.code ? ": " : "",
                    result->error.text, accuracy);
    };
    if (pl_trainer_fit(trainer, on_done, nullptr, err) != PL_OK)
        return err->code;
    return pl_engine_run_until(engine.get(), nullptr, err);
}

}  // namespace

int main(int argc, char **argv)
{
    pl_error_t err{};
    const points data;
    if (pl_init(&argc, &argv, components, &err) == PL_OK)  // always first
        train(data, &err);
    if (err.code != PL_OK)
        std::fprintf(stderr, "embed: %s\n", err.text);
    return err.code != PL_OK;
}
