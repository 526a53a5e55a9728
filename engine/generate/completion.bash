
# Words of `paceline list --keys`, such as "trainer.precision=16-mixed": first the keys, then their values.
_paceline_keys() {
    paceline list --keys 2>/dev/null | if [[ $1 == *=* ]]; then
        cat
    else
        sed 's/=.*/=/'
    fi
}

_paceline_candidates() {
    local what suffix word
    read -r what suffix word <<<"$(_paceline_what "$1")"
    case $what in
    commands) _paceline_commands ;;
    roles) paceline list 2>/dev/null | sed 's/ .*//' && echo trainer data ;;
    keys) _paceline_keys "$2" ;;
    esac
    [ -z "$word" ] || echo "$word"
}

_paceline_files() {
    local what suffix word
    read -r what suffix word <<<"$(_paceline_what "$1")"
    case $what in
    programs) compgen -c -- "$2" ;&
    files)
        compgen -d -- "$2"
        if [ "$suffix" = - ]; then
            compgen -f -- "$2"
        else
            compgen -f -X "!*.$suffix" -- "$2"
        fi
        ;;
    esac
}

# The place of the cursor: "fit --set" after that option, "fit" at an operand.
_paceline() {
    local line=${COMP_LINE:0:COMP_POINT} place
    local -a words
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    local count=${#words[@]} current=${words[-1]}
    COMPREPLY=()
    if ((count <= 2)); then
        mapfile -t COMPREPLY < <(compgen -W "$(_paceline_commands)" -- "$current")
        return
    fi
    place=${words[1]}
    if [[ $current == --*=* ]]; then
        place+=" ${current%%=*}"
        current=${current#*=}
    elif [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_paceline_flags "$place")" -- "$current")
        return
    elif [[ ${words[-2]} == --* && -n $(_paceline_what "$place ${words[-2]}") ]]; then
        place+=" ${words[-2]}"
    fi
    mapfile -t COMPREPLY < <(
        compgen -W "$(_paceline_candidates "$place" "$current")" -- "$current"
        _paceline_files "$place" "$current"
    )
    if [[ ${COMPREPLY[0]-} == *= ]]; then
        compopt -o nospace 2>/dev/null
    fi
    # bash replaces only the text after the last character at which it breaks words.
    local kept=${current%"${current##*["$COMP_WORDBREAKS"]}"}
    COMPREPLY=("${COMPREPLY[@]#"$kept"}")
}
complete -o filenames -F _paceline paceline
