# bash completion for exo (bash 3.2 and later; bash-completion is not needed)
_exo() {
    local out line
    COMPREPLY=()
    out=$("$1" __complete bash "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null) || return 0
    while IFS= read -r line; do
        case $line in
            :done) ;;
            :files) compopt -o default -o filenames +o nospace 2>/dev/null; return 0 ;;
            *) COMPREPLY[${#COMPREPLY[@]}]=$line ;;
        esac
    done <<< "$out"
    return 0
}
complete -o nospace -F _exo exo exo-cli
