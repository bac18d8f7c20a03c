# SPDX-License-Identifier: BSD-3-Clause
#
# awk -v version=V -f manual.awk regx.conf REPORT regx.7.in: the manual page. Its parameters are those of
# regx.conf, with the text that stands before them there; the keys of the report are what `describe
# manual` prints into the file REPORT.

FILENAME ~ /[.]conf$/ {
    if (/^# ---/) {
        sections++
        gsub(/^# -+ | -+$/, "")
        close_entry()
        page = page ".SS " quoted($0) "\n"
    } else if (sections == 0) {
        next
    } else if (/^#btl_regx/) {
        names = names ".B " quoted(substr($0, 2)) "\n.br\n"
    } else if (/^#/) {
        if (names != "")
            close_entry()
        text = text quoted(substr($0, 3)) "\n"
    } else if (names != "") {
        close_entry()
    } else if (text != "") { # said of the whole section
        page = page ".nf\n" text ".fi\n"
        text = ""
    }
    next
}

FILENAME ~ /[.]report$/ {
    gsub(/-/, "\\-")
    report = report $0 "\n"
    next
}

/^@REPORT@$/ {
    printf "%s", report
    next
}

/^@PARAMETERS@$/ {
    close_entry()
    printf "%s", page
    next
}

{
    gsub(/@VERSION@/, version)
    print
}

function close_entry() {
    if (names != "")
        page = page ".PP\n" names ".RS 4\n.nf\n" text ".fi\n.RE\n"
    names = text = ""
}

# What troff would take for its own.
function quoted(line) {
    gsub(/\\/, "\\e", line)
    gsub(/-/, "\\-", line)
    gsub(/`/, "", line)
    if (line ~ /^[.']/)
        line = "\\&" line
    return line
}
