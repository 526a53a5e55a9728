/* manual_program.h - the program of a manual loop, for tests: one request at a time */
#ifndef T_MANUAL_PROGRAM_H
#define T_MANUAL_PROGRAM_H

#include "rig.h"

enum { BATCH = 8, SAMPLES = 40, STEPS = SAMPLES / BATCH, TENSORS = 8, ELEMENTS = 64 };

/* The result of a request. */
typedef struct answer {
    bool done;
    pl_error_t error;
    uint64_t step;
    double loss, norm;
    int count;
    char name[TENSORS][64];
    pl_shape_t shape[TENSORS];
    float data[TENSORS][ELEMENTS];
} answer_t;

extern float x[SAMPLES][RIG_FEATURES];
extern pl_loop_t *loop;
extern pl_error_t err;
extern const char *callbacks;       /* of the next loop, JSON with commas between */
extern bool saves;                                          /* it has a run directory */
extern char run_dir[300], metrics[1000];                    /* of the newest result */

#define MLP "{\"name\": \"mlp\", \"hidden\": [4], \"classes\": 3}"
#define SGD "{\"name\": \"sgd\", \"lr\": 0.1, \"momentum\": 0.9}"

/* Why a loop does not open, or ""; and a test that it opens. */
const char *program_open(const char *module, const char *optimizer, const char *trainer);
bool program_begin(const char *module, const char *optimizer, const char *trainer);
/* Closes it: the answer has the weights. */
answer_t program_end(void);

pl_arrays_t program_batch(int first, int count);
/* Takes the result of a request, user: answer_t; waits for it, if the call was taken. */
void program_take(pl_loop_t *of, const pl_loop_result_t *result, void *user);
answer_t program_wait(int code, answer_t *answer);
answer_t program_train(int first, int count);
answer_t program_backward(const char *objective, int first, int count);
answer_t program_step(const char *objective);
answer_t program_gradients(const char *objective);
answer_t program_set(const char *objective, const answer_t *to);
bool program_same(const answer_t *a, const answer_t *b);

#endif
