use super::*;

#[test]
fn paths_start_at_the_folder_of_the_config_wherever_the_shell_stands() {
    for (file, working_dir, of_file, of_defaults) in [
        ("riskgate.toml", "/srv/rg", "", ""),
        ("conf/riskgate.toml", "/srv/rg", "", ""),
        ("./conf/../riskgate.toml", "/srv/rg", "conf/..", "conf/.."),
        ("riskgate.toml", "/srv/rg/conf", "/srv/rg", "/srv/rg"),
        ("rg/riskgate.toml", "/srv", "rg", "rg"),
        ("/srv/rg/conf/a.toml", "/srv/rg", "/srv/rg", "/srv/rg"),
        ("/srv/rg/a.toml", "/", "/srv/rg", "/srv/rg"),
        ("/etc/riskgate/riskgate.toml", "/", "/etc/riskgate", "/var/lib/riskgate"),
        ("./riskgate.toml", "/etc/riskgate", "", "/var/lib/riskgate"),
        ("/etc/riskgate/conf/a.toml", "/", "/etc/riskgate", "/var/lib/riskgate"),
        ("/etc/riskgate/eu/a.toml", "/", "/etc/riskgate/eu", "/etc/riskgate/eu"),
    ] {
        let found = RelativePathBases::of_config(Path::new(file), Path::new(working_dir));
        let expected =
            RelativePathBases { of_file: of_file.into(), of_defaults: of_defaults.into() };
        assert_eq!(found, expected, "{file} in {working_dir}");
    }
}
