/* summary.h - the layers of a module and the FLOPs of a forward pass, from a graph */
#ifndef PL_TENSOR_SUMMARY_H
#define PL_TENSOR_SUMMARY_H

#include <jansson.h>

#include "tensor/graph.h"
#include "tensor/model.h"

/* Floating-point operations of the products of a forward pass over the whole batch: two
 * for each multiplication and addition of a product, convolution or attention; other
 * operators count as nothing.  Training takes three times as many, as usually counted
 * (Chowdhery et al., PaLM, appendix B): a repeated computation does not count. */
double pl_graph_flops(const pl_graph_t *g);

/* The layers of a described graph in order of first use: a list of {"name": "fc1",
 * "type": "linear", "in": [64, 784], "out": [64, 128], "parameters": 100480}.  Shapes are
 * those of the operation that uses the layer's parameters first. */
json_t *pl_graph_layers(const pl_graph_t *g, const pl_model_t *model, pl_error_t *err);

#endif
