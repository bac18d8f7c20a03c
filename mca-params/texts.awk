# SPDX-License-Identifier: BSD-3-Clause
#
# awk -f texts.awk regx.conf: each parameter's default and help for Open MPI, as a table in C. The
# help is the paragraph before the words, and of each word the first sentence. What more the file says
# is for the manual page (manual.awk).

BEGIN {
    print "/* Made from mca-params/regx.conf. */\n#include \"btl/component.h\"\n"
    print "const regx_param_text_t regx_param_texts[] = {"
}

/^# ---/ { sections++ }
/^# ---|^$/ { text = words = "" }
sections == 0 || /^# ---|^#?$/ { next }

/^#btl_regx_/ {
    value = $0
    sub(/^[^=]*= */, "", value)
    printf "    {\"%s\", \"%s\",\n     \"%s%s\"},\n", substr($1, 11), value, text,
           words != "" ? " Allowed: " words ")." : ""
    next
}

/^#   [^ ]/ { # a word, and what it means
    words = words (words != "" ? "); " : "") $2 " ("
    sub(/^# +[^ ]+ +/, "")
    over = 0
    add_meaning($0, "")
    next
}

/^#    / {
    sub(/^# +/, "")
    add_meaning($0, " ")
    next
}

words == "" { text = text (text != "" ? " " : "") quoted(substr($0, 3)) }

END { print "    {NULL, NULL, NULL}};" }

# Up to the first full stop.
function add_meaning(line, before) {
    if (!over) {
        over = match(line, /\. |\.$/)
        words = words before quoted(over ? substr(line, 1, RSTART - 1) : line)
    }
}

function quoted(line) {
    gsub(/\\/, "\\\\", line)
    gsub(/"/, "\\\"", line)
    return line
}
