# fish completion for exo
function __exo_complete
    set -l words (commandline -opc)
    set -l cur (commandline -ct)
    for line in ($words[1] __complete fish -- $words[2..-1] "$cur" 2>/dev/null)
        switch $line
            case :done
            case :files
                __fish_complete_path "$cur"
            case '*'
                echo $line
        end
    end
end
complete --command exo --no-files --arguments '(__exo_complete)'
complete --command exo-cli --no-files --arguments '(__exo_complete)'
