/* record.c - tests of recorded graphs: their calls give the graphs that C gives, and a
 * record with mistakes is refused with the place of the call */
#include "tensor/record.h"

#include <stdio.h>
#include <string.h>

#include "base/bind.h"
#include "base/json_text.h"
#include "base/options.h"
#include "tap.h"
#include "tensor/model.h"

static const pl_field_t image[] = {{"x", PL_F32, {3, {3, 8, 8}}}, {"y", PL_I64, {0}}};

static void in_c(pl_graph_t *g)
{
    const pl_init_rule_t weight = pl_normal(0.02);
    pl_node_t x = pl_input(g, "x");
    pl_scope(g, "%s", "body");
    x = pl_conv2d(g, "conv", x, 4,
                  &(pl_conv_options_t){.kernel = 3, .padding = 1, .no_bias = true});
    x = pl_max_pool2d(g, pl_relu(g, x), 2, 0, 0);
    pl_scope_end(g);
    x = pl_permute(g, x, (int[]){0, 2, 3, 1});
    x = pl_reshape(g, x, pl_shape(2, -1, 64));
    const pl_node_t parts[] = {pl_slice(g, x, 1, 0, 32), pl_slice(g, x, 1, 32, 64)};
    x = pl_concat(g, parts, 2, 1);
    x = pl_add(g, x, pl_param(g, "shift", pl_shape(1, 64), pl_zeros()));
    x = pl_linear_with(g, "fc", x, 3, &(pl_linear_options_t){.weight = &weight});
    pl_output(g, "logits", x);
    const pl_node_t y = pl_input(g, "y"), weights = pl_vector(g, (double[]){1, 2, 3}, 3);
    pl_loss(g,
            pl_cross_entropy(g, x, y,
                             &(pl_cross_entropy_options_t){.class_weights = &weights}));
    pl_log(g, "f1", pl_f1(g, x, y, &(pl_classes_options_t){.average = PL_WEIGHTED}),
           PL_ON_EPOCH | PL_ON_STEP);
    x = pl_sum(g, x, (int[]){0, 1}, 2, false);
    pl_log(g, "norm", pl_pair(x, pl_scalar(g, 1)), PL_ON_EPOCH);
    x = pl_reshape(g, pl_input(g, "x"), pl_shape(3, -1, 8, 24));
    pl_node_t h, c;
    x = pl_lstm(g, "rnn", x, 5, &(pl_recurrent_options_t){.bidirectional = true}, &h, &c);
    x = pl_sum(g, x, (int[]){0, 1, 2}, 3, false);
    pl_log(g, "steps", pl_pair(x, pl_scalar(g, 1)), PL_ON_EPOCH);
    x = pl_sum(g, pl_sub(g, h, c), (int[]){0, 1, 2}, 3, false);
    pl_log(g, "states", pl_pair(x, pl_scalar(g, 1)), PL_ON_EPOCH);
}

static const char *const recorded =
    "[['input',{'name':'x'}],['scope',{'name':'body'}],"
    "['conv2d',{'name':'conv','x':0,'channels':4,'kernel':3,'padding':1,'no_bias':true}],"
    "['relu',{'x':2}],['max_pool2d',{'x':3,'kernel':2,'stride':0,'padding':0}],"
    "['scope_end',{}],['permute',{'x':4,'order':[0,2,3,1]}],"
    "['reshape',{'x':6,'shape':[-1,64]},'net.py:3'],"
    "['slice',{'x':7,'axis':1,'from':0,'to':32}],"
    "['slice',{'x':7,'axis':1,'from':32,'to':64}],['concat',{'x':[8,9],'axis':1}],"
    "['param',{'name':'shift','shape':[64],'init':{'zeros':[]}}],['add',{'x':10,'y':11}],"
    "['linear_with',{'name':'fc','x':12,'units':3,'weight':{'normal':[0.02]},"
    "'bias':null}],['output',{'name':'logits','x':13}],['input',{'name':'y'}],"
    "['vector',{'values':[1,2,3]}],"
    "['cross_entropy',{'logits':13,'targets':15,'class_weights':16}],"
    "['loss',{'loss':17}],['f1',{'logits':13,'targets':15,'average':'weighted'}],"
    "['log',{'name':'f1','metric':19,'when':'on_epoch|on_step'}],"
    "['sum',{'x':13,'axes':[0,1],'keep':false}],['scalar',{'value':1}],"
    "['pair',{'sum':21,'weight':22}],"
    "['log',{'name':'norm','metric':23,'when':'on_epoch'}],['input',{'name':'x'}],"
    "['reshape',{'x':25,'shape':[-1,8,24]}],"
    "['lstm',{'name':'rnn','x':26,'hidden':5,'bidirectional':true,'results':true}],"
    "['sum',{'x':27,'axes':[0,1,2],'keep':false}],['scalar',{'value':1}],"
    "['pair',{'sum':28,'weight':29}],"
    "['log',{'name':'steps','metric':30,'when':'on_epoch'}],"
    "['result',{'of':27,'number':1}],['result',{'of':27,'number':2}],"
    "['sub',{'x':32,'y':33}],['sum',{'x':34,'axes':[0,1,2],'keep':false}],"
    "['scalar',{'value':1}],['pair',{'sum':35,'weight':36}],"
    "['log',{'name':'states','metric':37,'when':'on_epoch'}]]";

/* JSON from a text with ' in place of ". */
static json_t *parsed(const char *quoted)
{
    char json[4096];
    snprintf(json, sizeof json, "%s", quoted);
    for (char *at = json; (at = strchr(at, '\''));)
        *at = '"';
    return pl_json_value(json, strlen(json), NULL);
}

/* A graph of a stage, made by calls [in C]. */
static uint32_t graph_hash(const char *calls, pl_stage_t stage, int fields,
                           pl_error_t *err)
{
    pl_model_t *model = pl_model_new(NULL);
    pl_graph_t *g = pl_graph_new(model, stage, image, fields, 4, NULL);
    json_t *record = calls ? parsed(calls) : NULL;
    int code = PL_OK;
    *err = (pl_error_t){0};
    if (calls)
        code = pl_record_apply(g, record, stage, err);
    else
        in_c(g);
    if (code == PL_OK)
        code = pl_graph_check(g, err);
    if (code == PL_OK && stage == PL_TRAIN)
        code = pl_graph_gradients(g, 4, false, err);
    const uint32_t hash = code == PL_OK ? pl_graph_hash(0, g) : 0;
    json_decref(record);
    pl_graph_free(g);
    pl_model_free(model);
    return hash;
}

static void a_record_gives_the_graph_of_c(void)
{
    for (pl_stage_t stage = PL_TRAIN; stage <= PL_TEST; stage++) {
        pl_error_t err;
        const uint32_t want = graph_hash(NULL, stage, 2, &err),
                       hash = graph_hash(recorded, stage, 2, &err);
        ok(hash && hash == want, "stage %d: the graph is the same %s", (int)stage,
           err.text);
    }
}

static void a_prediction_makes_what_outputs_need(void)
{
    pl_error_t err;
    ok(graph_hash(recorded, PL_PREDICT, 1, &err), "it needs no targets %s", err.text);
    ok(!graph_hash(recorded, PL_VALIDATE, 1, &err), "a validation does");
    like(err.text, "^input: .*y", "and the error names the call");
}

static void stages_can_have_their_own_calls(void)
{
    pl_error_t err;
    static const char *const both =
        "{'train':[['input',{'name':'x'}]],'validate':[['input',{'name':'x'}]],"
        "'test':[['input',{'name':'x'}]],"
        "'predict':[['input',{'name':'x'}],['relu',{'x':0}],"
        "['output',{'name':'r','x':1}]]}";
    ok(graph_hash(both, PL_PREDICT, 1, &err), "a list for each %s", err.text);
    graph_hash("{'train':[['input',{'name':'x'}]]}", PL_TEST, 1, &err);
    like(err.text, "^a record is a list of calls, or an object with the lists", "all");
}

static void mistakes_name_their_call(void)
{
    static const struct {
        const char *calls, *pattern;
    } mistakes[] = {
        {"[]", "^a record is a list of calls"},
        {"3", "^a record is a list of calls"},
        {"[3]", "a call is \\[\"linear\","},
        {"[['input']]", "a call is \\[\"linear\","},
        {"[['input',[]]]", "a call is \\[\"linear\","},
        {"[['input',{},'a',1]]", "a call is \\[\"linear\","},
        {"[['inputt',{}]]", "no graph function \"inputt\": did you mean \"input\"\\?$"},
        {"[['graph_fail',{}]]", "no graph function \"graph_fail\""},
        {"[['input',{},'net.py:4']]",
         "^net.py:4: input: the argument \"name\" is missing"},
        {"[['input',{'name':3}]]", "input: name takes a text, not 3$"},
        {"[['input',{'name':'x','nam':1}]]",
         "it has no argument \"nam\": did you mean \"na"},
        {"[['relu',{'x':0}]]", "relu: x takes a node: the number of an earlier call, "
                               "below 0, not 0$"},
        {"[['input',{'name':'x'}],['relu',{'x':-1}]]", "below 1, not -1$"},
        {"[['input',{'name':'x'}],['relu',{'x':'0'}]]", "below 1, not \"0\"$"},
        {"[['scope',{'name':'a'}],['relu',{'x':0}]]", "and call 0 makes no value$"},
        {"[['input',{'name':'x'}],['loss',{'loss':0}]]",
         "loss takes a loss or metric, and "
         "call 0 makes a node$"},
        {"[['range',{'n':1.5}]]", "range: n takes a whole number, not 1.5$"},
        {"[['input',{'name':'x'}],['flatten',{'x':0,'from_axis':4294967296}]]",
         "from_axis takes a number of 32 bits"},
        {"[['scalar',{'value':'one'}]]", "value takes a number, not \"one\"$"},
        {"[['param',{'name':'w','shape':[1,1,1,1,1,1,1,1,1],'init':{'zeros':[]}}]]",
         "shape takes as many sizes"},
        {"[['param',{'name':'w','shape':[2],'init':{'normal':[]}}]]",
         "\"normal\" of 0 numbers"},
        {"[['param',{'name':'w','shape':[2],'init':'zeros'}]]",
         "takes an initialization"},
        {"[['param',{'name':'w','shape':'a','init':{'zeros':[]}}]]",
         "takes whole numbers"},
        {"[['state',{'name':'w','shape':[2],'init':{'zeros':[]},'agree':'all'}]]",
         "agree takes one of rank0, mean, none, not \"all\"$"},
        {"[['input',{'name':'x'}],['sum',{'x':0,'axes':[],'keep':1}]]",
         "keep takes true or false, not 1$"},
        {"[['input',{'name':'x'}],['concat',{'x':[0,7],'axis':0}]]", "below 1, not 7$"},
        {"[['vector',{'values':[1,null]}]]", "values takes numbers"},
        {"[['input',{'name':'x'}],['permute',{'x':0,'order':[0]}]]",
         "permute: order takes a number for each of the 4 axes of x, not 1$"},
        {"[['input',{'name':'x'}],['adaptive_max_pool',{'x':0,'size':[1,1,1,1]}]]",
         "adaptive_max_pool: size takes at most 3 numbers, not 4$"},
        {"[['input',{'name':'x'}],['max_pool',{'x':0,'kernel':[2,0]}]]",
         "max_pool: kernel takes sizes of at least 1, not \\[2,0\\]$"},
        {"[['tensor',{'dtype':'float32','shape':[2],'values':[1]}]]",
         "tensor: values takes 2 numbers, which shape has, not 1$"},
        {"[['tensor',{'dtype':'float32','shape':[0],'values':[]}]]",
         "shape takes sizes of at least 1"},
        {"[['tensor',{'dtype':'int64','shape':[4294967296,4294967296],'values':[]}]]",
         "shape takes sizes of at least 1, which fit in memory"},
        {"[['tensor',{'dtype':'uint8','shape':[1],'values':[1]}]]",
         "dtype takes one of float32, int32, int64, not \"uint8\"$"},
        {"[['tensor',{'dtype':'int64','shape':[1],'values':[1.5]}]]",
         "values takes whole numbers"},
        {"[['tensor',{'dtype':'int64','shape':[1]}]]", "\"values\" is missing"},
        {"[['tensor',{'dtype':'int64','shape':[1],'base64':'AADAPw=='}]]",
         "base64 has 4 bytes, but an element has 8"},
        {"[['tensor',{'dtype':'float32','shape':[1],'base64':'AADA?w=='}]]",
         "base64 takes bytes in base64"},
        {"[['tensor',{'dtype':'float32','shape':[1],'base64':'AADAPw='}]]",
         "base64 takes bytes in base64"},
        {"[['input',{'name':'x'}],['matmul',{'x':0}]]", "it has no argument \"x\""},
        {"[['input',{'name':'x'}],['sort',{'x':0,'axis':1,'descending':false}],"
         "['result',{'of':1,'number':1}]]",
         "result: call 1 has 0 further results"},
        {"[['input',{'name':'x'}],"
         "['sort',{'x':0,'axis':1,'descending':false,'results':true}],"
         "['result',{'of':1,'number':2}]]",
         "result: call 1 has 1 further results: number 2 is none"},
        {"[['input',{'name':'x'}],"
         "['custom_metric',{'name':'m','parameter':0,'states':[[0,'mean']]}]]",
         "custom_metric: states takes states"},
        {"[['custom_metric',{'name':'m','parameter':0,'states':[[0,'sum']]}]]",
         "states takes a node: the number of an earlier call, below 0"},
        {"[['custom_metric',{'name':'m','parameter':0,'states':3}]]",
         "states takes a list of at most 4 states"},
        {"[['input',{'name':'z'},'a.py:1']]", "^a.py:1: input: .*z"},
        {"[['scope',{'name':'a'}]]", "without pl_scope_end"},
    };
    for (size_t k = 0; k < sizeof mistakes / sizeof *mistakes; k++) {
        pl_error_t err;
        is_int(graph_hash(mistakes[k].calls, PL_TRAIN, 2, &err), 0, "%s is refused",
               mistakes[k].calls);
        like(err.text, mistakes[k].pattern, "with the reason");
    }
}

static void a_run_file_is_checked_before_it_runs(void)
{
    char json[600];
    pl_error_t err = {0};
    snprintf(json, sizeof json, "%s",
             "{'module':{'name':'graph','calls':[['input',{'name':'x'}],"
             "['relu',{'x':4},'net.py:9']]},'optimizer':'sgd',"
             "'data':{'name':'csv','path':'x'}}");
    for (char *at = json; (at = strchr(at, '\''));)
        *at = '"';
    pl_options_t *o = pl_options_parse(json, "r", NULL);
    ok(o && pl_options_check(o, &err) == PL_EINVAL, "a wrong record is refused");
    like(err.text, "^r:1:[0-9]+: \"module.calls\": net.py:9: relu: x takes a node",
         "with its place in the file and in the program");
    pl_options_free(o);
}

static void sizes_of_axes_may_be_fewer_than_the_axes(void)
{
    pl_error_t err = {0};
    pl_recorder_t *r = pl_recorder_new(image, 2, PL_TRAIN, NULL);
    pl_text_free(pl_recorder_call(r, "[\"input\",{\"name\":\"x\"}]", &err));
    char *answer = pl_recorder_call(r, "[\"adaptive_avg_pool\",{\"x\":0,\"size\":[4]}]",
                                    &err);
    is_text(answer,
            "{\"value\":1,\"kind\":\"node\",\"shape\":[-1,3,4,4],\"dtype\":"
            "\"float32\"}",
            "the last size is also the size of the other axes %s", err.text);
    pl_text_free(answer);
    pl_recorder_free(r);
}

static void errors_name_the_batch_and_the_function_once(void)
{
    static const struct {
        const char *call, *pattern;
    } mistakes[] = {
        {"[\"concat\",{\"x\":[0,1],\"axis\":1},\"a.py:3\"]",
         "^a.py:3: concat takes an axis from -1 to 0 of \\[batch\\], got 1$"},
        {"[\"reshape\",{\"x\":0,\"shape\":[-1,7]}]",
         "^reshape: the 192 x batch elements of \\[batch, 3, 8, 8\\] are not"},
        {"[\"conv\",{\"name\":\"c\",\"x\":1,\"channels\":48}]",
         "^c: conv takes x \\[B, C, \\.\\.\\.\\] .*, got \\[batch\\]$"},
        {"[\"permute\",{\"x\":0,\"order\":[1]}]", "^permute: order takes a number"},
    };
    for (size_t k = 0; k < sizeof mistakes / sizeof *mistakes; k++) {
        pl_error_t err = {0};
        pl_recorder_t *r = pl_recorder_new(image, 2, PL_TRAIN, NULL);
        pl_text_free(pl_recorder_call(r, "[\"input\",{\"name\":\"x\"}]", &err));
        pl_text_free(pl_recorder_call(r, "[\"input\",{\"name\":\"y\"}]", &err));
        ok(!pl_recorder_call(r, mistakes[k].call, &err), "%s is refused",
           mistakes[k].call);
        like(err.text, mistakes[k].pattern, "in words that fit each batch");
        pl_recorder_free(r);
    }
}

/* The answer to a call; pl_text_free() it. */
static char *answer_of(pl_recorder_t *r, const char *call)
{
    pl_error_t err = {0};
    char text[300];
    snprintf(text, sizeof text, "%s", call);
    for (char *at = text; (at = strchr(at, '\''));)
        *at = '"';
    char *answer = pl_recorder_call(r, text, &err);
    return answer ? answer : pl_text("%s", err.text);
}

static void a_padding_of_0_in_a_list_is_none(void)
{
    static const struct {
        const char *call, *shape;
    } calls[] = {
        {"['conv',{'name':'c','x':0,'channels':3,'kernel':[3,1],'padding':[1,0]}]",
         "[-1,3,8,8]"},
        {"['conv',{'name':'d','x':0,'channels':3,'kernel':[3,1],'padding':[0,1]}]",
         "[-1,3,6,10]"},
        {"['max_pool',{'x':0,'kernel':[2,3],'stride':[2,3],'padding':[1,0]}]",
         "[-1,3,5,2]"},
        {"['conv_transpose',{'name':'t','x':0,'channels':3,'kernel':[3],'stride':[2],"
         "'padding':[1],'dilation':[1],'output_padding':[1,0]}]",
         "[-1,3,16,15]"},
    };
    pl_recorder_t *r = pl_recorder_new(image, 2, PL_TRAIN, NULL);
    pl_text_free(answer_of(r, "['input',{'name':'x'}]"));
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
        char *answer = answer_of(r, calls[k].call), found[80];
        const char *shape = strstr(answer, "[");
        snprintf(found, sizeof found, "%.*s", shape ? (int)strcspn(shape, "]") + 1 : 60,
                 shape ? shape : answer);
        is_text(found, calls[k].shape, "%s", calls[k].call);
        pl_text_free(answer);
    }
    pl_recorder_free(r);
}

static void arrays_are_constants(void)
{
    static const char *const equal[] = {
        "[['tensor',{'dtype':'float32','shape':[2],'values':[1.5,2]}],"
        "['output',{'name':'o','x':0}],['input',{'name':'x'}]]",
        "[['tensor',{'dtype':'float32','shape':[2],'base64':'AADAPwAAAEA='}],"
        "['output',{'name':'o','x':0}],['input',{'name':'x'}]]",
        "[['tensor',{'dtype':'float32','shape':[2],'base64':'AADAPwAAQEA='}],"
        "['output',{'name':'o','x':0}],['input',{'name':'x'}]]"};
    pl_error_t err = {0};
    const uint64_t list = graph_hash(equal[0], PL_PREDICT, 2, &err);
    ok(list && list == graph_hash(equal[1], PL_PREDICT, 2, &err),
       "numbers and their bytes are one constant %s", err.text);
    ok(list != graph_hash(equal[2], PL_PREDICT, 2, &err), "other bytes another");
    pl_recorder_t *r = pl_recorder_new(image, 2, PL_TRAIN, NULL);
    char *answer = answer_of(r, "['tensor',{'dtype':'int64','shape':[1,2],"
                                "'values':[9007199254740993,-1]}]");
    like(answer, "\"shape\":.1,2.,\"dtype\":\"int64\"", "whole numbers: %s", answer);
    pl_text_free(answer);
    pl_recorder_free(r);
}

static void a_recorder_tells_shapes(void)
{
    pl_error_t err;
    pl_recorder_t *r = pl_recorder_new(image, 2, PL_TRAIN, NULL);
    char *answer = pl_recorder_call(r, "[\"input\",{\"name\":\"x\"}]", &err);
    is_text(answer,
            "{\"value\":0,\"kind\":\"node\",\"shape\":[-1,3,8,8],\"dtype\":"
            "\"float32\"}",
            "the size of the batch is unknown");
    pl_text_free(answer);
    answer = pl_recorder_call(r, "[\"mse\",{\"x\":0,\"target\":0}]", &err);
    is_text(answer, "{\"value\":1,\"kind\":\"metric\"}", "a loss has no shape");
    pl_text_free(answer);
    answer = pl_recorder_call(r, "[\"scope\",{\"name\":\"a\"}]", &err);
    is_text(answer, "{\"value\":2}", "a scope no value");
    pl_text_free(answer);
    is_int(pl_recorder_check(r, &err), PL_ESTATE, "it has to end");
    ok(!pl_recorder_call(r, "[\"relu\",{\"x\":0},\"n.py:1\"", &err)
           && pl_recorder_check(NULL, NULL) == PL_EINVAL,
       "what is no JSON is refused");
    ok(!pl_recorder_call(r, "[\"relu\",{\"x\":9},\"n.py:1\"]", &err), "so is a mistake");
    like(err.text, "^n.py:1: relu: x takes a node", "with its place");
    ok(!pl_recorder_call(r, "[\"relu\",{\"x\":0}]", &err), "after it nothing works");
    like(err.text, "^n.py:1: relu: x takes a node", "for that reason");
    is_int(pl_recorder_check(r, &err), PL_EINVAL, "which stays");
    pl_recorder_free(r);
    ok(!pl_recorder_new(NULL, 2, PL_TRAIN, &err) && err.code == PL_EINVAL, "no fields");
    pl_recorder_free(NULL);
}

int main(void)
{
    pl_init(NULL, NULL, NULL, NULL);
    run(a_record_gives_the_graph_of_c);
    run(a_prediction_makes_what_outputs_need);
    run(stages_can_have_their_own_calls);
    run(mistakes_name_their_call);
    run(a_run_file_is_checked_before_it_runs);
    run(sizes_of_axes_may_be_fewer_than_the_axes);
    run(errors_name_the_batch_and_the_function_once);
    run(a_padding_of_0_in_a_list_is_none);
    run(arrays_are_constants);
    run(a_recorder_tells_shapes);
    return tap_done();
}
