/* foreign.c - files that are no table as text, recognised by what they begin with
 *
 * The error names the format and how its content becomes data that are read. Only marks
 * count that no table begins with; the name of the file says nothing. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "formats/table.h"

typedef struct foreign {
    size_t at, size;                                        /* of the mark, in bytes */
    const char *mark, *what, *advice;
} foreign_t;

#define UNPACK "unpack it, such as by: "
#define PICTURE "pictures are read from a folder that has a folder for each class"
#define SOUND "recordings are read from a folder that has a folder for each class"

static const foreign_t foreigners[] = {
    {0, 4, "\x89PNG", "a PNG picture", PICTURE},
    {0, 3, "\xFF\xD8\xFF", "a JPEG picture", PICTURE},
    {0, 5, "GIF89", "a GIF picture", "convert it to PNG; " PICTURE},
    {8, 4, "WEBP", "a WebP picture", "convert it to PNG; " PICTURE},
    {8, 8, "WAVEfmt ", "a WAV recording", SOUND},
    {0, 4, "fLaC", "a FLAC recording", SOUND},
    {0, 5, "%PDF-", "a PDF document", "save its tables as CSV"},
    {0, 4, "PAR1", "a Parquet file",
     "convert it by DuckDB (COPY 'FILE.parquet' TO 'FILE.csv') or pandas "
     "(read_parquet(\"FILE.parquet\").to_csv(\"FILE.csv\", index=False))"},
    {0, 6, "ARROW1", "a Feather file of Arrow",
     "convert it by pandas (read_feather(\"FILE\").to_csv(\"FILE.csv\", index=False))"},
    {0, 8, "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", "a file of Excel (.xls)",
     "save its sheet as CSV"},
    {0, 3, "BZh", "compressed by bzip2", UNPACK "bunzip2 FILE"},
    {0, 6, "\xFD\x37zXZ", "compressed by xz", UNPACK "unxz FILE"},
    {0, 6, "7z\xBC\xAF\x27\x1C", "an archive of 7-Zip", UNPACK "7z x FILE"},
    {257, 5, "ustar", "an archive of tar", UNPACK "tar -xf FILE"},
    {0, 8, "\x89HDF\r\n\x1A\n", "an HDF5 file", "give it a name that ends in .h5"},
    {0, 6, "\x93NUMPY", "an array of NumPy", "give it a name that ends in .npy"},
};

/* A ZIP is a workbook where its first files say so. */
static foreign_t zip_of(const char *data, size_t size)
{
    static const char *const of_books[] = {"[Content_Types].xml", "xl/",
                                           "opendocument.spreadsheet"};
    const size_t looked = size < 4096 ? size : 4096;
    for (size_t k = 0; k < sizeof of_books / sizeof *of_books; k++)
        if (memmem(data, looked, of_books[k], strlen(of_books[k])))
            return (foreign_t){.what = "a workbook (.xlsx, .ods)",
                               .advice = "save its sheet as CSV"};
    return (foreign_t){.what = "an archive of ZIP", .advice = UNPACK "unzip FILE"};
}

/* "[" with "{" or "[" behind it: no header of a table begins so. */
static bool is_json_list(const char *data)
{
    static const char blanks[] = " \t\r\n";
    data += strspn(data, blanks);
    if (*data != '[')
        return false;
    data += 1 + strspn(data + 1, blanks);
    return *data == '{' || *data == '[';
}

/* A line of numbers with indices: "1 3:0.5 7:1", of which the indices rise. */
static bool is_libsvm(const char *data)
{
    char *end;
    long last = -1;
    int pairs = 0;
    strtod(data, &end);
    if (end == data)
        return false;
    for (data = end; *data == ' '; pairs++) {
        data += strspn(data, " ");
        if (!*data || *data == '\n' || *data == '\r')
            break;
        const long index = strtol(data, &end, 10);
        if (end == data || *end != ':' || index <= last)
            return false;
        last = index;
        data = end + 1;
        strtod(data, &end);
        if (end == data)
            return false;
        data = end;
    }
    return pairs > 1 && (!*data || *data == '\n' || *data == '\r');
}

int pl_foreign_refuse(const char *data, size_t size, const char *name, pl_error_t *err)
{
    foreign_t found = {.what = NULL};
    for (size_t k = 0; k < sizeof foreigners / sizeof *foreigners && !found.what; k++)
        if (size >= foreigners[k].at + foreigners[k].size
            && !memcmp(data + foreigners[k].at, foreigners[k].mark, foreigners[k].size))
            found = foreigners[k];
    if (!found.what && size > 4 && !memcmp(data, "PK\3\4", 4))
        found = zip_of(data, size);
    else if (!found.what && is_json_list(data))
        found = (foreign_t){.what = "a list of JSON",
                            .advice = "write an object on each line, in a file that ends "
                                      "in .jsonl, such as by: jq -c '.[]' FILE.json"};
    else if (!found.what && is_libsvm(data))
        found = (foreign_t){
            .what = "a file of LIBSVM",
            .advice = "convert it by scikit-learn: x, y = load_svmlight_file(\"FILE\"); "
                      "numpy.savez(\"FILE.npz\", x=x.toarray().astype(\"f4\"), y=y)"};
    return found.what ? pl_fail(err, PL_EFORMAT, "%s is no table as text, it is %s: %s",
                                name, found.what, found.advice)
                      : PL_OK;
}
