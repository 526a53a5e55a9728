/* page.c - the files of the page, compiled in: a program that embeds Paceline has nothing
 * to find */
#include "telemetry/dashboard_parts.h"

#include <string.h>

#include "engine/telemetry/page.inc"

static const page_file_t files[] = {
    {"/", "text/html; charset=utf-8", index_html, sizeof index_html},
    {"/icon.svg", "image/svg+xml", icon_svg, sizeof icon_svg},
    {"/page.css", "text/css; charset=utf-8", page_css, sizeof page_css},
    {"/page.js", "text/javascript; charset=utf-8", page_js, sizeof page_js},
};

const page_file_t *page_file(const char *path)
{
    for (size_t k = 0; k < sizeof files / sizeof *files; k++)
        if (!strcmp(path, files[k].path))
            return &files[k];
    return NULL;
}
