#include "kernels/javascript.h"

#include <string.h>

/* What has to be known of JavaScript to see its words at the top level: comments, strings,
 * templates (which nest), brackets (which of them are bodies of functions), and regular
 * expressions, which only what stands before them tells from a division. */

enum { MAX_DEPTH = 256 };

/* What an open bracket is; the first level is the file. */
enum {
    LEVEL_CURLY = 1 << 0,    /* { */
    LEVEL_TEMPLATE = 1 << 1, /* ${ */
    LEVEL_FUNCTION = 1 << 2, /* the body of a function */
    LEVEL_CONTROL = 1 << 3,  /* the ( of if, for, while … */
    LEVEL_ARROW = 1 << 4,    /* in it, the body of an arrow function without braces goes on */
};

typedef struct {
    const char *at, *end;
    guint8 levels[MAX_DEPTH];
    guint depth;
    guint functions; /* levels that are in a function, or are one */
    char last;       /* the last token's last character; 'a' for a word, '\0' at the start */
    gboolean last_is_keyword; /* a word after which an expression begins */
    gboolean last_is_control; /* if, for, while …; or the ) of one */
    gboolean last_is_arrow;
    gboolean new_line; /* since the last token */
    gboolean has_common_js, has_await;
    gboolean lost; /* deeper than is looked at here */
} Reader;

static gboolean is_word(char c)
{
    return g_ascii_isalnum(c) || c == '_' || c == '$' || (c & 0x80) || c == '#' || c == '\\';
}

static gboolean word_is(const char *word, gsize size, const char *const *list)
{
    for (; *list; list++) {
        if (strlen(*list) == size && memcmp(word, *list, size) == 0) {
            return TRUE;
        }
    }
    return FALSE;
}

static gboolean starts_with(const Reader *reader, const char *text)
{
    gsize size = strlen(text);

    return (gsize)(reader->end - reader->at) >= size && memcmp(reader->at, text, size) == 0;
}

/* To the end of the line, which stays. */
static void skip_line(Reader *reader)
{
    while (reader->at < reader->end && *reader->at != '\n') {
        reader->at++;
    }
}

static void skip_block_comment(Reader *reader)
{
    for (reader->at += 2; reader->at < reader->end; reader->at++) {
        if (starts_with(reader, "*/")) {
            reader->at += 2;
            return;
        }
        reader->new_line |= *reader->at == '\n';
    }
}

/* White space and comments. */
static void skip_space(Reader *reader)
{
    while (reader->at < reader->end) {
        if (g_ascii_isspace(*reader->at)) {
            reader->new_line |= *reader->at == '\n';
            reader->at++;
        } else if (starts_with(reader, "//")) {
            skip_line(reader);
        } else if (starts_with(reader, "/*")) {
            skip_block_comment(reader);
        } else {
            return;
        }
    }
}

/* A string in quotes; it ends with its line at the latest. */
static void skip_string(Reader *reader)
{
    char quote = *reader->at++;

    while (reader->at < reader->end && *reader->at != '\n') {
        char c = *reader->at++;

        if (c == quote) {
            return;
        }
        if (c == '\\' && reader->at < reader->end) {
            reader->at++;
        }
    }
}

static void skip_regular_expression(Reader *reader)
{
    gboolean in_class = FALSE;

    for (reader->at++; reader->at < reader->end && *reader->at != '\n';) {
        char c = *reader->at++;

        if (c == '/' && !in_class) {
            return;
        }
        if (c == '[' || c == ']') {
            in_class = c == '[';
        }
        if (c == '\\' && reader->at < reader->end) {
            reader->at++;
        }
    }
}

static guint8 *level_of(Reader *reader)
{
    return &reader->levels[reader->depth];
}

static void set_arrow(Reader *reader, gboolean on)
{
    guint8 *level = level_of(reader);

    if (on && !(*level & LEVEL_ARROW)) {
        *level |= LEVEL_ARROW;
        reader->functions++;
    } else if (!on && (*level & LEVEL_ARROW)) {
        *level &= (guint8)~LEVEL_ARROW;
        reader->functions--;
    }
}

static void push(Reader *reader, guint8 level)
{
    if (reader->depth + 1 == MAX_DEPTH) {
        reader->lost = TRUE;
        return;
    }
    reader->levels[++reader->depth] = level;
    reader->functions += (level & LEVEL_FUNCTION) != 0;
}

/* Returns what was closed. */
static guint8 pop(Reader *reader)
{
    guint8 level = *level_of(reader);

    set_arrow(reader, FALSE);
    if (reader->depth > 0) {
        reader->functions -= (level & LEVEL_FUNCTION) != 0;
        reader->depth--;
    }
    return level;
}

/* The text of a template up to its end or to its next ${. */
static void skip_template(Reader *reader)
{
    while (reader->at < reader->end) {
        char c = *reader->at++;

        if (c == '`') {
            reader->last = '`';
            return;
        }
        if (c == '\\' && reader->at < reader->end) {
            reader->at++;
        } else if (c == '$' && reader->at < reader->end && *reader->at == '{') {
            reader->at++;
            push(reader, LEVEL_TEMPLATE);
            reader->last = '{';
            return;
        }
    }
}

/* Whether an import or export at the top level begins a declaration; the reader stands behind
 * the word. */
static gboolean begins_declaration(const Reader *reader, gboolean is_export)
{
    static const char *const exported[] = {"default",  "const", "let",   "var",
                                           "function", "class", "async", NULL};
    Reader ahead = *reader;
    const char *word;

    skip_space(&ahead);
    if (ahead.at == ahead.end) {
        return FALSE;
    }
    if (*ahead.at == '{' || *ahead.at == '*') {
        return TRUE;
    }
    if (!is_export) {
        return *ahead.at == '"' || *ahead.at == '\'' ||
               (is_word(*ahead.at) && !g_ascii_isdigit(*ahead.at));
    }
    word = ahead.at;
    while (ahead.at < ahead.end && is_word(*ahead.at)) {
        ahead.at++;
    }
    return word_is(word, (gsize)(ahead.at - word), exported);
}

/* Whether what follows an await is an operand: the word may also be a name. */
static gboolean has_operand(const Reader *reader)
{
    Reader ahead = *reader;

    skip_space(&ahead);
    return ahead.at < ahead.end && *ahead.at &&
           (is_word(*ahead.at) || strchr("\"'`([{", *ahead.at));
}

/* The word before the reader's place. TRUE: only a module has it here. */
static gboolean judge_word(Reader *reader, const char *word, gsize size)
{
    static const char *const common_js[] = {"require",   "module",     "exports",
                                            "__dirname", "__filename", NULL};
    static const char *const keywords[] = {"return", "typeof",     "case",  "in",    "of",
                                           "delete", "void",       "throw", "new",   "do",
                                           "else",   "instanceof", "yield", "await", NULL};
    static const char *const controls[] = {"if", "for", "while", "switch", "catch", "with", NULL};
    gboolean is_import = size == 6 && memcmp(word, "import", 6) == 0;
    gboolean is_export = size == 6 && memcmp(word, "export", 6) == 0;
    gboolean begins =
        reader->last == '\0' || reader->last == ';' || reader->last == '}' || reader->new_line;
    gboolean is_member = reader->last == '.';

    if (!is_member && word_is(word, size, common_js)) {
        reader->has_common_js = TRUE;
    }
    if (!is_member && is_import && starts_with(reader, ".meta")) {
        return TRUE;
    }
    if (!is_member && (is_import || is_export) && begins && reader->depth == 0 &&
        begins_declaration(reader, is_export)) {
        return TRUE;
    }
    if (!is_member && size == 5 && memcmp(word, "await", 5) == 0 && reader->functions == 0 &&
        has_operand(reader)) {
        reader->has_await = TRUE;
    }
    /* "for await (" is for's. */
    reader->last_is_control = !is_member && (word_is(word, size, controls) ||
                                             (reader->last_is_control && reader->last == 'a'));
    reader->last = 'a';
    reader->last_is_keyword = !is_member && word_is(word, size, keywords);
    return FALSE;
}

static gboolean read_word(Reader *reader)
{
    const char *word = reader->at;

    while (reader->at < reader->end && is_word(*reader->at)) {
        reader->at++;
    }
    return judge_word(reader, word, (gsize)(reader->at - word));
}

static void open_bracket(Reader *reader, char c)
{
    guint8 level = 0;

    if (c == '(' && reader->last == 'a' && reader->last_is_control) {
        level = LEVEL_CONTROL;
    } else if (c == '{') {
        gboolean is_body =
            reader->last_is_arrow || (reader->last == ')' && !reader->last_is_control);

        level = is_body ? LEVEL_CURLY | LEVEL_FUNCTION : LEVEL_CURLY;
        if (reader->last_is_arrow) {
            set_arrow(reader, FALSE);
        }
    }
    push(reader, level);
}

static void read_punctuation(Reader *reader)
{
    gboolean is_arrow = starts_with(reader, "=>");
    char c = *reader->at;
    guint8 closed = 0;

    reader->at += is_arrow ? 2 : 1;
    if (c && strchr("([{", c)) {
        open_bracket(reader, c);
    } else if (c && strchr(")]}", c)) {
        closed = pop(reader);
    } else if (c == ';' || c == ',') {
        set_arrow(reader, FALSE);
    }
    if (is_arrow) {
        set_arrow(reader, TRUE);
    }
    reader->last_is_arrow = is_arrow;
    reader->last_is_control = (closed & LEVEL_CONTROL) != 0;
    reader->last = c;
    if (c == '}' && (closed & LEVEL_TEMPLATE)) {
        skip_template(reader);
    }
}

/* Whether a '/' here begins a regular expression: not behind what a division divides. */
static gboolean expects_expression(const Reader *reader)
{
    if (reader->last == 'a') {
        return reader->last_is_keyword;
    }
    return !(reader->last && strchr(")]}\"`", reader->last));
}

/* One token. TRUE: only a module has it. */
static gboolean read_token(Reader *reader)
{
    char c = *reader->at;

    /* A statement ends with its line, as far as this has to know. */
    if (reader->new_line && !reader->last_is_arrow &&
        (reader->depth == 0 || (*level_of(reader) & LEVEL_CURLY))) {
        set_arrow(reader, FALSE);
    }
    if (is_word(c)) {
        gboolean found = read_word(reader);

        reader->last_is_arrow = FALSE;
        return found;
    }
    if (c == '"' || c == '\'') {
        skip_string(reader);
        reader->last = '"';
    } else if (c == '`') {
        reader->at++;
        skip_template(reader);
    } else if (c == '/' && expects_expression(reader)) {
        skip_regular_expression(reader);
        reader->last = '"';
    } else {
        read_punctuation(reader);
        return FALSE;
    }
    reader->last_is_arrow = FALSE;
    return FALSE;
}

gboolean javascript_is_module(const char *source, gsize size)
{
    Reader reader = {.at = source, .end = size ? source + size : source};

    if (starts_with(&reader, "#!")) {
        skip_line(&reader);
    }
    for (;;) {
        reader.new_line = FALSE;
        skip_space(&reader);
        if (reader.at == reader.end || reader.lost) {
            return !reader.lost && reader.has_await && !reader.has_common_js;
        }
        if (read_token(&reader)) {
            return TRUE;
        }
    }
}
