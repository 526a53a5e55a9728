/* picture_pixels.h - resizing, cutting, turning and colouring of pictures
 *
 * Each function changes work->picture; those that need another picture for it swap it
 * with work->spare. */
#ifndef PL_PICTURE_PIXELS_H
#define PL_PICTURE_PIXELS_H

#include "actors/connectors/datasets/pictures.h"

/* A part of a picture, in pixels. */
typedef struct pl_picture_box {
    double x, y, width, height;
} pl_picture_box_t;

/* Resizes a part: each pixel is a mean over the pixels of the source that it covers,
 * weighted by a triangle (bilinear with antialiasing).  PL_ENOMEM. */
int pl_picture_resize(pl_picture_work_t *work, pl_picture_box_t box, int width,
                      int height, pl_error_t *err);

/* Cuts width x height pixels at (x, y), which may lie outside; there is black. */
int pl_picture_crop(pl_picture_work_t *work, int x, int y, int width, int height,
                    pl_error_t *err);

/* Mirrors left and right, or top and bottom. */
void pl_picture_mirror(pl_picture_t *picture, bool upside_down);

/* Rotates about the middle, with the mean of four neighbours; outside is black. */
int pl_picture_rotate(pl_picture_work_t *work, double degrees, pl_error_t *err);

/* Multiplies by factors of brightness, contrast (about the mean grey) and saturation
 * (about the grey of each pixel); turns hues by that part of the circle. */
void pl_picture_recolor(pl_picture_t *picture, const double factor[3], double turn);

/* Paints a rectangle whose middle is at (at_x, at_y), shares of the sides. */
void pl_picture_cut_out(pl_picture_t *picture, int width, int height, double at_x,
                        double at_y, uint8_t value);

#endif
